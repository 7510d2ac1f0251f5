"""What all rooms of the runtime use and that knows none of them: clocks, errors, batching, pauses, breakpoints."""
