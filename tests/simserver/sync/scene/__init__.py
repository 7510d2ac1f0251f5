"""Tests of scenes: what `@dcl/ecs` 7.28.0 did, row for row, and what is refused that it takes."""
