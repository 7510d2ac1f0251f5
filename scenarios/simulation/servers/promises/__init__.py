"""What is watched at every step of a run, and in its end.

judge        one authority, states that only go forward, inputs once and in order, nothing durable lost
absences     owners that go away, and entities whose servers die
apart        groups whose entities are moved each by itself
births       entities that are created and deleted
families     hierarchies
notices      the time that is granted before an entity leaves
ownerships   the authority hears of an entity's new owner
"""
