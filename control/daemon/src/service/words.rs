//! Conversions between types of the API and of the engine with the same values.

use block_device::SectorSize;
use volumes::{CapacityClass, Durability, Recovery, Reduction, VolumeMirror};

/// A type of the API.
pub(super) trait InterfaceWord {
    type Engine;

    fn to_engine(self) -> Self::Engine;
}

/// A type of the engine.
pub(super) trait EngineWord {
    type Interface;

    fn to_interface(self) -> Self::Interface;
}

macro_rules! same_words {
    ($($interface:ty = $engine:ty { $($word:ident),* })*) => {
        $(
            impl InterfaceWord for $interface {
                type Engine = $engine;

                fn to_engine(self) -> $engine {
                    match self {
                        $(Self::$word => <$engine>::$word,)*
                    }
                }
            }

            impl EngineWord for $engine {
                type Interface = $interface;

                fn to_interface(self) -> $interface {
                    match self {
                        $(Self::$word => <$interface>::$word,)*
                    }
                }
            }
        )*
    };
}

same_words! {
    api::SectorBytes = SectorSize { Bytes512, Bytes4096 }
    api::Reduction = Reduction { Full, Compress, Dedup, None }
    api::Durability = Durability { Ram, Image, Journal }
    api::Capacity = CapacityClass { Thin, Guaranteed }
    api::VolumeMirror = VolumeMirror { Yes, No }
    api::RecoveryState = Recovery { Complete, Sweeping }
}
