"""A renderer and its scenes as processes of one machine, which exchange frames over sockets; `scene` has what they say.

batches    frames on a stream of bytes, and what a scene says of itself first
inspector  a page that shows the scenes and moves with them, and the same as JSON; its files are `scenes.*`
node       the renderer's side: each scene has a connection and a task of its own, and the frames are common
program    the scene's side
"""
