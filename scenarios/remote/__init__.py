"""`baton tree`, `baton cluster` and `baton observe`: a server's tree, instance and actors, from the command line.

connection   which server, which token, and what its errors are here
tree         reading, writing, watching, export and import
cluster      the members of an instance, and changing them
observe      the actors of a server, and one of them from inside
"""
