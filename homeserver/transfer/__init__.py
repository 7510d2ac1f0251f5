"""Transfers as home decides them: requests, batches, groups, certificates, what is told after a commit.

service        which part answers a message; start reading here
asked, batch   what old authorities ask, and how it is decided: what came alone is a batch of one
group_commit   one step of the log for a batch
decided        what the log said, as an answer
group_result   the requests that wait for the rest of a group
order, order_retry, notices    what authorities are told unasked
parcels        sealing and sending
"""
