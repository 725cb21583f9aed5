//! The words of a frame, and the heads of `Install` bodies.

use ifunc_abi::frame::{
    CompanionHead, FrameFlags, Header, InstallBody, InstallHead, Kind, commit_word, split_commit_word,
};
use ifunc_abi::signature::Signature;
use zerocopy::IntoBytes as _;

/// Three words, then an `Install` body.
pub fn run(data: &[u8]) {
    let (words, body) = data.as_chunks::<8>();
    let word = |index: usize| words.get(index).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (sequence, len) = split_commit_word(word(0));
    assert_eq!(commit_word(sequence, len), word(0));
    header([word(1), word(2)]);
    install(words.get(3..).map_or(body, |_| &data[24..]));
}

/// What is parsed is encoded as it was, and the short cuts find nothing else.
fn header(words: [u64; 2]) {
    let parsed = Header::parse(words);
    if let Ok(header) = parsed {
        assert_eq!(header.words(), words);
    }
    // Its own kind, and the two that nearly every frame is of.
    let own = Kind::from_code(words[0] as u8).unwrap_or(Kind::Sync);
    for kind in [own, Kind::Exec, Kind::Completion] {
        let expected = parsed.ok().filter(|header| {
            header.kind == kind && FrameFlags::INLINE.union(header.flags) == FrameFlags::INLINE
        });
        let plain = Header::parse_plain(words, kind);
        assert_eq!(
            plain,
            expected.map(|header| Header::new(kind, header.handle, header.token))
        );
        let is_inline = expected.is_some_and(|header| header.flags == FrameFlags::INLINE);
        assert_eq!(Header::parse_inline(words, kind), plain.filter(|_| is_inline));
    }
}

fn install(body: &[u8]) {
    let Ok(InstallBody {
        head,
        signature,
        companions,
        image,
    }) = InstallHead::split(body)
    else {
        return;
    };
    let mut whole = [head.as_bytes(), signature].concat();
    for one in companions {
        let len = one.image.len() as u32;
        let mut head = CompanionHead::new(one.id, len, false);
        head.signature_len = (one.signature.len() as u16).into();
        head.signature_scheme = one.scheme.into();
        whole.extend([head.as_bytes(), one.signature, one.image].concat());
    }
    whole.extend(image);
    assert_eq!(whole, body);
    assert!((1..=ifunc_abi::image::MAX_ENTRIES).contains(&head.entries.get().into()));
    if let Ok(Some(parsed)) = Signature::parse(head.signature_scheme.get(), signature) {
        assert_eq!(parsed.as_bytes(), signature);
    }
}
