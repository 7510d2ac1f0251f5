"""Structs and enumerations equal what a compiler makes of RenderStream's header (vectors/, branch engine_sync_dev)."""

import enum
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.followers import structs
from batonpass.simserver.sync.followers.ports import ShowStream
from batonpass.simserver.sync.followers.streams import pack_streams
from batonpass.simserver.sync.followers.struct_layout import RenderStreamStruct
from batonpass.simserver.sync.followers.structs import (
    CameraData,
    FrameData,
    FrameDataFlag,
    HostMemoryData,
    NumericalDefaults,
    ProjectionClipping,
    RemoteParameter,
    RemoteParameterTypeDefaults,
    RenderStreamError,
    RsError,
    RsPixelFormat,
    SenderFrame,
    SenderFrameType,
    StreamDescription,
    StreamDescriptions,
    layout_of,
    write_into,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / "layout_engine_sync_dev.json").read_text())
ENUMS = {
    "RSPixelFormat": (structs.RsPixelFormat, "RS_FMT_"),
    "RS_ERROR": (structs.RsError, "RS_"),
    "FRAMEDATA_FLAGS": (structs.FrameDataFlag, "FRAMEDATA_"),
    "REMOTEPARAMETER_FLAGS": (structs.RemoteParameterFlag, "REMOTEPARAMETER_"),
    "SenderFrameType": (structs.SenderFrameType, "RS_FRAMETYPE_"),
    "RemoteParameterType": (structs.RemoteParameterType, "RS_PARAMETER_"),
    "RemoteParameterDmxType": (structs.RemoteParameterDmxType, "RS_"),
    "UseDX12SharedHeapFlag": (structs.UseDx12SharedHeapFlag, "RS_DX12_"),
}


@pytest.mark.parametrize("name", VECTORS["structs"])
def test_r1_every_offset_and_size_of_a_struct_equals_the_header(name: str) -> None:
    cls: type[RenderStreamStruct] = getattr(structs, name)
    expected = VECTORS["structs"][name]
    assert [list(place) for place in layout_of(cls).places] == expected["fields"]
    assert layout_of(cls).size == expected["size"] == len(cls().pack())


def test_r1_there_are_all_structs_and_enumerations_and_no_others() -> None:
    ours = {cls.__name__ for cls in RenderStreamStruct.__subclasses__()}
    assert ours == VECTORS["structs"].keys()
    assert ENUMS.keys() == VECTORS["enums"].keys()


@pytest.mark.parametrize("name", VECTORS["enums"])
def test_r1_every_value_of_an_enumeration_equals_the_header(name: str) -> None:
    cls, prefix = ENUMS[name]
    members: dict[str, int] = {member: value.value for member, value in cls.__members__.items()}
    expected = {
        key.removeprefix(prefix).removeprefix("ERROR_").replace("DMX_DEFAULT", "DEFAULT"): value
        for key, value in VECTORS["enums"][name].items()
    }
    assert members == expected
    assert issubclass(cls, enum.IntEnum | enum.IntFlag)


def test_the_bytes_of_frame_data_are_those_of_the_header() -> None:
    data = FrameData(1.0, 2.0, 0.5, 60000, 1001, FrameDataFlag.RESET, 3)
    assert data.pack().hex() == ("000000000000f03f0000000000000040000000000000e03f60ea0000e90300000100000003000000")


@given(
    st.floats(), st.floats(width=32), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
)
def test_what_was_packed_is_read_back_bit_by_bit(
    wide: float, narrow: float, handle: int, rate: int, flags: int
) -> None:
    for value in (
        FrameData(t_tracked=wide, frame_rate_numerator=rate, flags=FrameDataFlag(flags)),
        structs.CameraResponseData(wide, CameraData(id=handle, x=narrow)),
        StreamDescription(handle=handle, clipping=ProjectionClipping(left=narrow)),
        structs.SkeletonPose(layout_id=handle, root_transform=structs.Transform(rw=narrow)),
    ):
        assert type(value).unpack(value.pack()).pack() == value.pack()


def test_parts_of_a_union_begin_at_its_first_byte() -> None:
    memory = HostMemoryData(data=9, stride=8, format=RsPixelFormat.RGBA8)
    frame = SenderFrame.unpack(SenderFrame(SenderFrameType.HOST_MEMORY, memory.pack()).pack())
    assert HostMemoryData.unpack(frame.content[: layout_of(HostMemoryData).size]) == memory
    number = NumericalDefaults(0.0, 1.0, 0.25, 0.5)
    parameter = RemoteParameter(defaults=RemoteParameterTypeDefaults(number.pack()))
    assert NumericalDefaults.unpack(RemoteParameter.unpack(parameter.pack()).defaults.content) == number


@pytest.mark.parametrize("size", [0, 39, 41])
def test_a_struct_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a FrameData has 40 bytes, not {size}"):
        FrameData.unpack(bytes(size))


def test_a_value_that_an_enumeration_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="99 is not a valid RsPixelFormat"):
        HostMemoryData.unpack(bytes(12) + (99).to_bytes(4, "little"))


@pytest.mark.parametrize("value", [FrameData(scene=-1), FrameData(scene=2**32), CameraData(x=1e300)])
def test_a_number_that_does_not_fit_its_field_is_refused_by_name(value: RenderStreamStruct) -> None:
    with pytest.raises(ValueError, match=f"{type(value).__name__}.*cannot be packed"):
        value.pack()


@pytest.mark.parametrize("buffer", [None, bytearray(), bytearray(4)])
def test_a_buffer_that_is_too_small_is_left_alone_and_the_needed_size_is_said(buffer: bytearray | None) -> None:
    before = bytes(buffer or b"")
    with pytest.raises(RenderStreamError, match="5 bytes do not fit") as refused:
        write_into(buffer, b"12345")
    assert (refused.value.code, refused.value.needed) == (RsError.BUFFER_OVERFLOW, 5)
    assert bytes(buffer or b"") == before


def test_a_buffer_that_is_large_enough_is_filled_from_its_begin() -> None:
    buffer = bytearray(b"......")
    assert write_into(buffer, b"12345") == 5
    assert buffer == b"12345."


@pytest.mark.parametrize("buffer", [bytes(9), "text" * 9, 9, memoryview(bytes(9)), memoryview(bytearray(18))[::2]])
def test_what_cannot_be_written_into_is_refused_by_name(buffer: Any) -> None:
    with pytest.raises(RenderStreamError, match="cannot be written into; pass a bytearray") as refused:
        write_into(buffer, b"12345")
    assert refused.value.code == RsError.INVALID_PARAMETERS


def test_the_buffer_of_streams_is_read_by_following_its_offsets() -> None:
    clipping = ProjectionClipping(0.0, 0.5, 0.0, 1.0)
    tiles = tuple(
        ShowStream(handle, f"tile {handle}é", 64, 32, clipping=clipping, mapping_name="m") for handle in (3, 4)
    )
    buffer = pack_streams(tiles)
    head = StreamDescriptions.unpack(buffer[: layout_of(StreamDescriptions).size])
    size = layout_of(StreamDescription).size
    read = [StreamDescription.unpack(buffer[head.streams + n * size :][:size]) for n in range(head.n_streams)]
    texts = [
        buffer[at : buffer.index(0, at)].decode() for one in read for at in (one.channel, one.name, one.mapping_name)
    ]
    assert [(one.handle, one.width, one.height, one.clipping) for one in read] == [
        (h, 64, 32, clipping) for h in (3, 4)
    ]
    assert texts == ["Default", "tile 3é", "m", "Default", "tile 4é", "m"]
