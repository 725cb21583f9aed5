//! Which slice of an image travels, and which accompany it.

use ifunc_abi::ImageId;
use ifunc_abi::frame::{CompanionHead, InstallBody, InstallHead, Kind, Limits, MAX_COMPANIONS};
use ifunc_abi::image::ARCH_X86_64;
use ifunc_abi::machine::Machine;
use ifunc_abi::signature::Signature;
use ifunc_abi::slices::best;

use super::{BATCH, LIMITS, send};
use crate::caller::{Image, ImageBytes, NotSent, Submission, SubmitError};
use crate::calls::Lost;
use crate::connection::{Config, Connection, Peer};
use crate::testing::Ends;

/// Slices: the CPU features that each needs, its letter, its length.
#[derive(Clone, Debug)]
struct Fat(Vec<(u64, Part)>);

#[derive(Clone, Debug)]
struct Part {
    id: ImageId,
    bytes: Vec<u8>,
    signature: Option<Signature>,
}

impl Part {
    fn as_sent(&self) -> ImageBytes<'_> {
        ImageBytes {
            id: &self.id,
            bytes: &self.bytes,
            signature: self.signature.as_ref(),
        }
    }
}

const fn machine(cpu_features: u64) -> Machine {
    Machine {
        arch: ARCH_X86_64,
        cpu_features,
    }
}

impl Image for Fat {
    fn id(&self) -> &ImageId {
        &[0; 32]
    }

    fn bytes(&self) -> &[u8] {
        &self.0[0].1.bytes
    }

    fn send_to<R>(
        &self,
        peer: Machine,
        send: impl FnOnce(ImageBytes<'_>, Vec<ImageBytes<'_>>) -> R,
    ) -> Result<R, String> {
        let needed = self.0.iter().map(|(features, _)| machine(*features));
        let index = best(peer, needed).ok_or_else(|| format!("none for {peer}"))?;
        let mut others: Vec<_> = self.0.iter().map(|(_, part)| part.as_sent()).collect();
        Ok(send(others.remove(index), others))
    }

    fn entries(&self) -> u8 {
        1
    }

    fn entry(&self) -> u8 {
        0
    }

    fn is_idempotent(&self) -> bool {
        false
    }
}

fn fat(slices: &[(u64, u8, usize)]) -> Fat {
    let part = |&(features, letter, len): &(u64, u8, usize)| {
        let signature = Signature {
            key: [letter; 32],
            signature: [letter; 64],
        };
        let part = Part {
            id: [letter; 32],
            bytes: vec![letter; len],
            signature: letter.is_ascii_uppercase().then_some(signature),
        };
        (features, part)
    };
    Fat(slices.iter().map(part).collect())
}

type Source = Connection<Fat, u32, std::convert::Infallible>;

fn link_to(source: &mut Source, machine: Machine, limits: Limits, max_body: usize) -> Ends {
    let mut link = Ends::new(max_body, usize::MAX);
    let peer = Peer {
        machine,
        limits: Some(limits),
        invokes: false,
        max_answer: 300,
        node: None,
    };
    source.connect(&mut link, peer);
    link
}

fn source() -> Source {
    Source::new(Config {
        batch_size: BATCH,
        max_answers: 10_000,
        server: None,
    })
}

fn submit(source: &mut Source, link: &mut Ends, submission: Submission) -> Result<u64, NotSent<Fat, ()>> {
    source.submit(link, submission, &mut |_: &mut [u8]| Ok(0))
}

/// The letters of the image and of its companions in an `Install`.
fn installed(link: &mut Ends) -> String {
    let frames = std::mem::take(&mut link.tx.frames);
    let bodies: Vec<Vec<u8>> = frames
        .into_iter()
        .filter(|(header, _)| matches!(header.kind, Kind::Install | Kind::Fragment))
        .map(|(_, body)| body)
        .collect();
    let body = bodies.concat();
    let InstallBody {
        head,
        signature,
        companions,
        image,
    } = InstallHead::split(&body).unwrap();
    let is_signed = |letter: u8| letter.is_ascii_uppercase();
    assert_eq!(
        signature.len(),
        if is_signed(head.id[0]) { Signature::SIZE } else { 0 }
    );
    assert!(image.iter().all(|byte| *byte == head.id[0]));
    let mut letters = String::from(char::from(head.id[0]));
    for companion in companions {
        let letter = companion.id[0];
        assert_eq!(u16::from(is_signed(letter)), companion.scheme);
        assert!(companion.image.iter().all(|byte| *byte == letter));
        letters.push(char::from(letter));
    }
    letters
}

#[test]
fn each_link_carries_the_slice_for_its_peer() {
    let mut source = source();
    let handle = source
        .caller
        .bind(fat(&[(0, b'a', 30), (3, b'C', 40), (1, b'b', 50)]));
    for (features, letters) in [(0, "aCb"), (1, "baC"), (7, "Cab"), (0, "aCb")] {
        let mut link = link_to(&mut source, machine(features), LIMITS, 4096);
        submit(&mut source, &mut link, send(handle, 0)).unwrap();
        assert_eq!(installed(&mut link), letters);
        submit(&mut source, &mut link, send(handle, 0)).unwrap();
        assert!(link.tx.frames.iter().all(|(header, _)| header.kind == Kind::Exec));
    }
}

#[test]
fn a_peer_without_a_slice_is_sent_nothing() {
    let mut source = source();
    let handle = source.caller.bind(fat(&[(3, b'c', 40), (7, b'd', 50)]));
    let mut link = link_to(&mut source, machine(1), LIMITS, 4096);
    let Err(NotSent::Failed(error)) = submit(&mut source, &mut link, send(handle, 0)) else {
        panic!("it was sent");
    };
    let why = "none for x86-64-v2".to_owned();
    assert!(matches!(*error, SubmitError::Lost(lost) if lost == Lost::NoSlice { why }));
    assert!(link.tx.frames.is_empty());
    // The next link leads to another machine.
    let mut link = link_to(&mut source, machine(3), LIMITS, 4096);
    submit(&mut source, &mut link, send(handle, 0)).unwrap();
    assert_eq!(installed(&mut link), "cd");
}

#[test]
fn companions_go_as_far_as_the_peer_takes_images() {
    let slices = [(0, b'a', 100), (1, b'b', 300), (3, b'c', 150), (7, b'd', 50)];
    for (max_image, letters) in [
        (100, "a"),
        (149, "a"),
        (150, "ad"),
        (300, "acd"),
        (500, "abd"),
        (600, "abcd"),
    ] {
        let mut source = source();
        let handle = source.caller.bind(fat(&slices));
        let limits = Limits { max_image, ..LIMITS };
        let mut link = link_to(&mut source, machine(0), limits, 4096);
        submit(&mut source, &mut link, send(handle, 0)).unwrap();
        assert_eq!(installed(&mut link), letters, "{max_image}");
    }
    let many: Vec<(u64, u8, usize)> = (0..40).map(|index| (index, index as u8, 1)).collect();
    let mut source = source();
    let handle = source.caller.bind(fat(&many));
    let mut link = link_to(&mut source, machine(0), LIMITS, 4096);
    submit(&mut source, &mut link, send(handle, 0)).unwrap();
    assert_eq!(installed(&mut link).len(), 1 + MAX_COMPANIONS);
}

#[test]
fn an_image_with_companions_travels_in_fragments() {
    let slices = [(0, b'a', 100), (1, b'B', 90)];
    let whole = InstallHead::SIZE + 100 + CompanionHead::SIZE + Signature::SIZE + 90;
    for (max_body, fragments) in [(whole, 0), (whole - 1, 1), (64, whole / 64)] {
        let mut source = source();
        let handle = source.caller.bind(fat(&slices));
        let mut link = link_to(&mut source, machine(0), LIMITS, max_body);
        submit(&mut source, &mut link, send(handle, 0)).unwrap();
        let is_fragment = |kind| kind == Kind::Fragment;
        let frames = link.tx.frames.iter();
        assert_eq!(
            frames.filter(|(header, _)| is_fragment(header.kind)).count(),
            fragments
        );
        assert_eq!(installed(&mut link), "aB");
    }
}
