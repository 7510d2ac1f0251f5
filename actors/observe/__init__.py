"""Looking into a running system: `sys`, displays of states, and the routes for operators."""
