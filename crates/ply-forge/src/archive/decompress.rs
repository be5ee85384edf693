//! Decompression chosen by a file's ending, with bounded memory.

use std::io::{self, Read};

/// How bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Plain,
    Gzip,
    Xz,
    Zstd,
}

/// The most memory that a stream may ask of the xz decoder: `xz -9` needs 65 MiB.
const XZ_MEMORY: u64 = 256 << 20;
/// The largest window that a zstd stream may ask for, as a power of two (128 MiB, what `zstd -d` takes).
const ZSTD_WINDOW_LOG: u32 = 27;

impl Compression {
    /// From the ending of a file's name; `None` for one that is not known.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name.rsplit('.').next()? {
            "tar" | "Packages" => Some(Self::Plain),
            "gz" | "tgz" => Some(Self::Gzip),
            "xz" => Some(Self::Xz),
            "zst" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A reader of the plain bytes.
pub(crate) fn decompressor<'a>(
    compression: Compression,
    from: impl Read + Send + 'a,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    Ok(match compression {
        Compression::Plain => Box::new(from),
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(from)),
        Compression::Xz => {
            let stream =
                liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)?;
            Box::new(liblzma::read::XzDecoder::new_stream(from, stream))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(from)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
    })
}
