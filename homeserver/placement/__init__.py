"""The balancer, and the entities that do not run where they are."""
