"""Component numbers by name: those of Decentraland's own components, and how a scene's own get theirs."""

import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["CORE_COMPONENTS", "MAX_STATIC_COMPONENT", "component_number"]

MAX_STATIC_COMPONENT: Final = 2048
"""Numbers below this are given by hand."""

_HASHED_BYTES: Final = 128

CORE_COMPONENTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        f"core::{name}": number
        for name, number in (
            ("Transform", 1),
            ("Animator", 1042),
            ("AssetLoad", 1213),
            ("AssetLoadLoadingState", 1214),
            ("AudioAnalysis", 1212),
            ("AudioEvent", 1105),
            ("AudioSource", 1020),
            ("AudioStream", 1021),
            ("AvatarAttach", 1073),
            ("AvatarBase", 1087),
            ("AvatarEmoteCommand", 1088),
            ("AvatarEquippedData", 1091),
            ("AvatarLocomotionSettings", 1211),
            ("AvatarModifierArea", 1070),
            ("AvatarNametag", 1221),
            ("AvatarShape", 1080),
            ("Billboard", 1090),
            ("CameraMode", 1072),
            ("CameraModeArea", 1071),
            ("EngineInfo", 1048),
            ("ExplorerUiEventsResult", 1220),
            ("GltfContainer", 1041),
            ("GltfContainerLoadingState", 1049),
            ("GltfNodeModifiers", 1099),
            ("InputModifier", 1078),
            ("LightSource", 1079),
            ("MainCamera", 1075),
            ("MapPin", 1097),
            ("Material", 1017),
            ("MeshCollider", 1019),
            ("MeshRenderer", 1018),
            ("NftShape", 1040),
            ("ParticleSystem", 1217),
            ("PhysicsCombinedForce", 1216),
            ("PhysicsCombinedImpulse", 1215),
            ("PlayerIdentityData", 1089),
            ("PointerEvents", 1062),
            ("PointerEventsResult", 1063),
            ("PointerLock", 1074),
            ("PrimaryPointerInfo", 1209),
            ("Raycast", 1067),
            ("RaycastResult", 1068),
            ("RealmInfo", 1106),
            ("SkyboxTime", 1210),
            ("TextShape", 1030),
            ("TouchScreenControls", 1218),
            ("TriggerArea", 1060),
            ("TriggerAreaResult", 1061),
            ("Tween", 1102),
            ("TweenSequence", 1104),
            ("TweenState", 1103),
            ("UiBackground", 1053),
            ("UiCanvasInformation", 1054),
            ("UiDropdown", 1094),
            ("UiDropdownResult", 1096),
            ("UiInput", 1093),
            ("UiInputBinding", 1219),
            ("UiInputResult", 1095),
            ("UiText", 1052),
            ("UiTransform", 1050),
            ("VideoEvent", 1044),
            ("VideoPlayer", 1043),
            ("VirtualCamera", 1076),
            ("VisibilityComponent", 1081),
        )
    }
)
"""As of `@dcl/ecs` 7.28.0 (ADR-165)."""


def component_number(name: str) -> int:
    """The number of the component `name`: a given one, or one that is computed from the name.

    Raises:
        ValueError: if the name has more than 128 bytes as UTF-8, which no other program would hash alike.
    """
    if name in CORE_COMPONENTS:
        return CORE_COMPONENTS[name]
    data = name.encode()
    if len(data) > _HASHED_BYTES:
        raise ValueError(f"the component name {name[:20]!r}... has {len(data)} bytes: {_HASHED_BYTES} at most")
    return (zlib.crc32(data.ljust(_HASHED_BYTES, b"\0")) + MAX_STATIC_COMPONENT) & 0xFFFF_FFFF
