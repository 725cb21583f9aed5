//! Frames that no source sends: of any kind and length, in any order, for handles and tokens that are not there.

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind};
use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageParts};

use super::Wire;
use crate::random::Random;

/// Largest body that is sent.
const MOST: usize = 60 << 10;

/// An image whose code answers nothing: `xor eax, eax; ret`. Each number is another image.
fn image(number: u64) -> Vec<u8> {
    let mut rx = vec![0x31, 0xc0, 0xc3];
    rx.extend_from_slice(&number.to_le_bytes());
    let parts = ImageParts {
        arch: ARCH_X86_64,
        entries: vec![EntryPart::new("nothing")],
        rx_align_log2: 4,
        rx,
        ..ImageParts::default()
    };
    parts.encode().expect("an image")
}

/// The body of an `Install`. One in four is changed behind its id.
fn install(random: &mut Random) -> Vec<u8> {
    let mut image = image(random.below(1 << 16) as u64);
    let id = *blake3::hash(&image).as_bytes();
    if random.one_in(4) {
        let at = random.below(image.len());
        image[at] ^= 1 << random.below(8);
    }
    let entries = if random.one_in(8) { random.next() as u16 } else { 1 };
    let mut head = InstallHead::unsigned(id, entries);
    if random.one_in(8) {
        head = InstallHead::signed(id, 1);
        image.splice(..0, random.bytes(96));
    }
    [zerocopy::IntoBytes::as_bytes(&head), &image].concat()
}

fn batch(random: &mut Random) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..1 + random.below(6) {
        let (len, count) = (random.below(100) as u32, random.odd_number() as u32);
        let count = if random.one_in(3) { count } else { count % 40 };
        let stride = len + random.below(9) as u32;
        let head = RunHead::new(random.below(4) as u32, random.odd_number(), len, stride, count);
        body.extend_from_slice(zerocopy::IntoBytes::as_bytes(&head));
        let entries = head.run_len().unwrap_or(0).min(MOST / 8);
        body.resize((body.len() + entries).min(MOST), 7);
    }
    body
}

/// Any frame. Installs and invocations of what was installed are among them, so that others reach the code behind them.
pub(super) fn garbage(wire: &mut impl Wire, random: &mut Random) -> bool {
    let kinds = [
        Kind::Exec,
        Kind::Install,
        Kind::Batch,
        Kind::Fragment,
        Kind::Sync,
        Kind::Stats,
        Kind::Travel,
    ];
    let kind = kinds[random.below(kinds.len())];
    let body = match kind {
        Kind::Install => install(random),
        Kind::Batch => batch(random),
        _ => {
            let len = random.odd_number() as usize % 2000;
            random.bytes(len)
        }
    };
    let mut header = Header::new(kind, random.below(4) as u32, random.odd_number());
    if random.one_in(4) {
        header.flags = FrameFlags::ASSEMBLED;
    }
    let mut words = header.words();
    if random.one_in(30) {
        words[random.below(2)] ^= 1 << random.below(64);
    }
    wire.send(words, &body)
}

/// As many invocations as there is credit for, whose answers the attacker never takes; the same tokens again and again.
pub(super) fn flood(wire: &mut impl Wire, random: &mut Random) -> bool {
    let body = install(random);
    if !wire.send(Header::new(Kind::Install, 0, 1).words(), &body) {
        return false;
    }
    for _ in 0..500 {
        let token = random.below(4) as u64;
        if !wire.send(
            Header::new(Kind::Exec, 0, token).words(),
            &random.next().to_le_bytes(),
        ) {
            return false;
        }
    }
    true
}

/// Bodies that are begun, as long as there may be any, and never completed.
pub(super) fn fragments(wire: &mut impl Wire, random: &mut Random) -> bool {
    let total = 1 << (16 + random.below(11));
    for _ in 0..random.below(200) {
        if !wire.send(Header::new(Kind::Fragment, 0, total).words(), &[7; MOST]) {
            return false;
        }
        wire.credit(random);
    }
    std::thread::sleep(std::time::Duration::from_millis(random.below(300) as u64));
    // The last part does not fit what was stated.
    let mut header = Header::new(Kind::Exec, 0, 3);
    header.flags = FrameFlags::ASSEMBLED;
    !random.one_in(4) || wire.send(header.words(), &[7; 100])
}
