"""Messages between entities: the outbox and what was received, of one entity. Pure; begin with `entity_mail`."""
