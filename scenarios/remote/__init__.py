"""`baton tree` and `baton cluster`: a homeserver's tree and its instance, from the command line.

connection   which server, which token, and what its errors are here
tree         reading, writing, watching, export and import
cluster      the members of an instance, and changing them
"""
