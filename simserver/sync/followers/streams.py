"""The list of streams as it lies in one buffer: `StreamDescriptions`, the descriptions, then their texts.

Pointers are offsets from the begin of the buffer; texts are UTF-8 and end with a zero byte. The buffer is for engines
that read the structs of RenderStream; all others have `ShowStream`.
"""

from batonpass.simserver.sync.followers.ports import ShowStream
from batonpass.simserver.sync.followers.structs import StreamDescription, StreamDescriptions, layout_of

__all__ = ["pack_streams"]


def pack_streams(streams: tuple[ShowStream, ...]) -> bytes:
    """Return the buffer of these streams. Raises ValueError if a number does not fit its field."""
    begin = layout_of(StreamDescriptions).size
    texts_at = begin + len(streams) * layout_of(StreamDescription).size
    texts = bytearray()
    packed = []
    for stream in streams:
        offsets = []
        for text in (stream.channel, stream.name, stream.mapping_name):
            offsets.append(texts_at + len(texts))
            texts += text.encode().replace(b"\0", b"") + b"\0"
        channel, name, mapping_name = offsets
        packed.append(
            StreamDescription(
                handle=stream.handle,
                channel=channel,
                mapping_id=stream.mapping_id,
                i_viewpoint=stream.viewpoint,
                name=name,
                width=stream.width,
                height=stream.height,
                format=stream.format,
                clipping=stream.clipping,
                mapping_name=mapping_name,
                i_fragment=stream.fragment,
            ).pack()
        )
    return StreamDescriptions(len(streams), begin).pack() + b"".join(packed) + texts
