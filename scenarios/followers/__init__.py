"""`baton run followers`: real servers show one particle world frame by frame, and lose their controller.

engine    the program that each node runs: particles that move by chance, their hashes and tiles
lossy     a bad network between the nodes, for `--loss` and `--jitter-ms`
records   what an engine writes down of each frame
judge     what all engines have written, held against each other
run       the command: cluster, kills, joins and the report
page      the report as one HTML page
"""
