"""Tests of the documentation as a whole: how long it is, what it links to, and that what it shows is run."""
