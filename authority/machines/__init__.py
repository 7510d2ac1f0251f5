"""Room authority/machines."""
