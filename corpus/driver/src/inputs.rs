//! The inputs, which are the same for all cases.

use corpus_case::Disorder;

const PROSE: &str = "The quick brown fox jumps over the lazy dog 13 times; 3.14159 -2.5e10 needle 0x1f 255 256 north up \
    east \"quoted \\\" text\" ada@example.com and an ant, banana!\nsecond line: key=value 1.2.3-rc.1 >=2\n\n(1 + 2) * 3\n";
const JSON: &str =
    "{\"name\": \"Ada\", \"list\": [1, 2.5, -3e2, null, true], \"nested\": {\"\": \"\\u00e9\"}} trailing";
const UNICODE: &str = "Grüße, ΑΣ Σίσυφος ǅ ﬁ İstanbul 日本語 👩‍👩‍👧 e\u{301} \u{2028}٣٤ — “quotes” ẞß\t\r\n";

/// All inputs. The empty one comes first: cases with persistent state reset it for an empty input.
pub(crate) fn all() -> Vec<Vec<u8>> {
    let disorder = |len: usize| -> Vec<u8> {
        Disorder::new(len as u64)
            .flat_map(u64::to_le_bytes)
            .take(len)
            .collect()
    };
    let mut all = vec![Vec::new()];
    // Every small length covers the branches that depend on it.
    all.extend((1..=9).map(|len| PROSE.as_bytes()[..len].to_vec()));
    all.push(PROSE.into());
    all.push(JSON.into());
    all.push(UNICODE.into());
    all.push((0..=255).collect());
    all.push(vec![0; 64]);
    all.push(PROSE.as_bytes().repeat(12));
    all.push(disorder(97));
    all.push(disorder(1234));
    all.push(disorder(20_000));
    all
}
