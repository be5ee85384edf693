//! Base64 (RFC 4648, 4), as armoured keys and npm's integrity strings use it.

/// The bytes of a standard base64 text; padding may be left out. `None` for anything else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut held, mut bits) = (0_u32, 0);
    for c in digits.bytes() {
        let six = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    (held == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn texts_of_every_length_decode() {
        let table: &[(&str, &[u8])] = &[
            ("", b""),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYmE", b"fooba"),
            ("+/8=", &[251, 255]),
        ];
        for (text, bytes) in table {
            assert_eq!(decode(text).as_deref(), Some(*bytes), "{text}");
        }
        for wrong in ["Z", "Zg===", "Z g=", "Zh==", "é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
