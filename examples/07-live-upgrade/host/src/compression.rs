//! How values are compressed, in two versions. The first byte of a compressed value names its format.

/// Format of the first version: runs of equal bytes, and other bytes as they are.
const RUNS: u8 = 1;
/// Format of the second version: LZ4.
const LZ4: u8 = 2;

/// Compresses runs of equal bytes.
#[ifunc::export]
pub fn compress(input: &[u8], output: &mut [u8]) -> u64 {
    pack(input, output).unwrap_or_default()
}

/// Expands what [`compress`] wrote. It knows no other format.
#[ifunc::export]
pub fn expand(input: &[u8], output: &mut [u8]) -> Option<u64> {
    let (&RUNS, packed) = input.split_first()? else {
        return None;
    };
    unpack(packed, output)
}

/// The second version of [`compress`]: compresses text that repeats.
#[ifunc::export]
pub fn compress_more(input: &[u8], output: &mut [u8]) -> u64 {
    let Some((format, output)) = output.split_first_mut() else {
        return 0;
    };
    *format = LZ4;
    lz4_flex::block::compress_into(input, output).map_or(0, |len| len as u64 + 1)
}

/// The second version of [`expand`]: expands both formats.
#[ifunc::export]
pub fn expand_both(input: &[u8], output: &mut [u8]) -> Option<u64> {
    match input.split_first()? {
        (&LZ4, packed) => {
            let len = lz4_flex::block::decompress_into(packed, output);
            len.ok().map(|len| len as u64)
        }
        _ => expand(input, output),
    }
}

/// Writes the format, and then either the length of a run, plus 128, and its byte, or the number of other bytes, and these.
fn pack(input: &[u8], output: &mut [u8]) -> Option<u64> {
    let mut len = 0;
    let mut write = |bytes: &[u8]| {
        output.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
        len += bytes.len();
        Some(())
    };
    write(&[RUNS])?;
    let run_at = |at: usize| {
        input[at..]
            .iter()
            .take(127)
            .take_while(|byte| **byte == input[at])
            .count()
    };
    let mut at = 0;
    while at < input.len() {
        let run = run_at(at);
        if run > 2 {
            write(&[128 + run as u8, input[at]])?;
            at += run;
            continue;
        }
        let from = at;
        while at < input.len() && at - from < 127 && run_at(at) <= 2 {
            at += 1;
        }
        write(&[(at - from) as u8])?;
        write(&input[from..at])?;
    }
    Some(len as u64)
}

fn unpack(mut packed: &[u8], output: &mut [u8]) -> Option<u64> {
    let mut len = 0;
    while let [count, rest @ ..] = packed {
        let count = usize::from(*count);
        let (count, used) = match count.checked_sub(128) {
            Some(run) => {
                output.get_mut(len..len + run)?.fill(*rest.first()?);
                (run, 1)
            }
            None => {
                output
                    .get_mut(len..len + count)?
                    .copy_from_slice(rest.get(..count)?);
                (count, count)
            }
        };
        len += count;
        packed = rest.get(used..)?;
    }
    Some(len as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_in_both_versions() {
        let text = "a text that repeats, a text that repeats,      and     runs    ".repeat(20);
        let long = [vec![7; 1000], (0..=255).collect(), vec![1, 1, 2, 2, 2]].concat();
        for value in [&b""[..], b"a", b"aaa", b"aabb", text.as_bytes(), &long] {
            let mut packed = vec![0; 2 * value.len() + 64];
            let mut back = vec![0; value.len()];
            let len = compress(value, &mut packed) as usize;
            assert_eq!(expand(&packed[..len], &mut back), Some(value.len() as u64));
            assert_eq!(back, value);
            back.fill(0);
            assert_eq!(expand_both(&packed[..len], &mut back), Some(value.len() as u64));
            assert_eq!(back, value);
            let len = compress_more(value, &mut packed) as usize;
            assert_eq!(
                expand(&packed[..len], &mut back),
                None,
                "a format of the second version"
            );
            back.fill(0);
            assert_eq!(expand_both(&packed[..len], &mut back), Some(value.len() as u64));
            assert_eq!(back, value);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(compress(b"abcdef", &mut [0; 4]), 0);
        assert_eq!(compress_more(b"abcdef", &mut [0; 4]), 0);
        let mut packed = [0; 16];
        let len = compress(b"aaaaaab", &mut packed) as usize;
        assert_eq!(expand(&packed[..len], &mut [0; 6]), None);
        for cut in 0..len {
            assert_ne!(expand(&packed[..cut], &mut [0; 16]), Some(7));
        }
    }
}
