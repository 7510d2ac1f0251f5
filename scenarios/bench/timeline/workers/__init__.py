"""Who does the work: ours, the naive replay, a plain loop over a heap, and a rollback engine; one program each."""
