//! The slices of a library: which one a machine is sent, and what to build for a machine that runs none.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ifunc_abi::ImageId;
use ifunc_abi::image::{AARCH64_FEATURES, ARCH_AARCH64, ARCH_X86_64, Image};
use ifunc_abi::machine::Machine;
use ifunc_abi::signature::Signature;
use ifunc_abi::slices::{agree, best};
use ifunc_exec::debug::{DebugObject, Functions};
use ifunc_exec::library::machines;
use ifunc_proto::caller::ImageBytes;

use super::error::LibraryError;

/// An image, and what it is for.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The machines that it is for.
    pub(crate) machine: Machine,
    pub(crate) id: ImageId,
    pub(crate) image: Vec<u8>,
    /// The signature that is sent beside it.
    pub(crate) signature: Option<Signature>,
    /// Its symbols, after the first request; `None` if they are unknown.
    functions: OnceLock<Option<Functions>>,
}

impl Slice {
    /// An image that parses.
    pub(crate) fn new(machine: Machine, id: ImageId, image: Vec<u8>, signature: Option<Signature>) -> Self {
        Self {
            machine,
            id,
            image,
            signature,
            functions: OnceLock::new(),
        }
    }

    pub(super) fn as_sent(&self) -> ImageBytes<'_> {
        ImageBytes {
            id: &self.id,
            bytes: &self.image,
            signature: self.signature.as_ref(),
        }
    }

    /// Its functions, if the library has their names.
    pub(super) fn functions(&self, path: &Path, library: &str) -> Option<&Functions> {
        let read = || DebugObject::read(path, library, &self.id).map(DebugObject::into_functions);
        self.functions.get_or_init(read).as_ref()
    }
}

/// The slices of a library: at least one.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    all: Vec<Arc<Slice>>,
    /// What identifies them together.
    id: ImageId,
}

impl Slices {
    /// Images of which one was parsed at least. Those after the first must agree with it.
    ///
    /// # Errors
    /// One does not parse, or is no slice of the same library.
    pub(super) fn new(all: Vec<Arc<Slice>>, path: &Path) -> Result<Self, LibraryError> {
        let broken = |error| LibraryError::Image {
            path: path.to_owned(),
            error,
        };
        let images = all.iter().map(|slice| Image::parse(&slice.image));
        let images: Vec<Image<'_>> = images.collect::<Result<_, _>>().map_err(broken)?;
        for (slice, image) in all.iter().zip(&images) {
            let why = match agree(&images[0], image) {
                Err(difference) => difference.to_string(),
                Ok(()) if image.machine() != slice.machine => {
                    format!("its image is for {}", image.machine())
                }
                Ok(()) => continue,
            };
            return Err(LibraryError::Slices {
                path: path.to_owned(),
                slice: slice.machine.to_string(),
                why,
            });
        }
        let id = match &*all {
            [one] => one.id,
            several => {
                let mut hasher = blake3::Hasher::new();
                for slice in several {
                    hasher.update(&slice.id);
                }
                *hasher.finalize().as_bytes()
            }
        };
        Ok(Self { all, id })
    }

    /// What identifies them: the id of the only image, or a hash of all ids.
    #[inline]
    pub(super) fn id(&self) -> &ImageId {
        &self.id
    }

    pub(super) fn all(&self) -> &[Arc<Slice>] {
        &self.all
    }

    pub(super) fn get(&self, index: usize) -> &Slice {
        &self.all[index.min(self.all.len() - 1)]
    }

    /// Sets the signature of each slice that has none.
    pub(super) fn sign(&mut self, signature_of: impl Fn(&ImageId) -> Option<Signature>) {
        for slice in &mut self.all {
            let Some(signature) = signature_of(&slice.id).filter(|_| slice.signature.is_none()) else {
                continue;
            };
            *slice = Arc::new(Slice::new(
                slice.machine,
                slice.id,
                slice.image.clone(),
                Some(signature),
            ));
        }
    }
}

/// The slice that a machine is sent. An image by itself is sent to every machine, which says better what it lacks.
///
/// # Errors
/// It runs none of them: why, and what to build.
pub(super) fn for_machine(all: &[&Slice], peer: Machine) -> Result<usize, String> {
    let needed = || all.iter().map(|slice| slice.machine);
    match best(peer, needed()) {
        Some(index) => Ok(index),
        None if all.len() == 1 => Ok(0),
        None => Err(format!(
            "the peer is {peer}, and the library has slices for {}; help: `{}`",
            machines(needed()),
            build_command(needed(), peer)
        )),
    }
}

/// The command that builds these slices and one for a machine.
fn build_command(slices: impl Iterator<Item = Machine>, machine: Machine) -> String {
    // Of AArch64, every CPU runs the one for its least CPU. Of x86-64, the levels are few.
    let missing = Machine {
        cpu_features: match machine.arch {
            // A level has all bits of those below it.
            ARCH_X86_64 => (1 << machine.cpu_features.trailing_ones().min(3)) - 1,
            _ => 0,
        },
        ..machine
    };
    let machines: Vec<Machine> = slices.chain([missing]).collect();
    let archs: BTreeSet<u16> = machines.iter().map(|machine| machine.arch).collect();
    let mut command = String::from("cargo ifunc build");
    if archs.iter().any(|&arch| arch != ifunc_exec::ARCH) {
        for arch in archs {
            let target = match arch {
                ARCH_X86_64 => "x86_64-unknown-linux-gnu",
                ARCH_AARCH64 => "aarch64-unknown-linux-gnu",
                _ => continue,
            };
            command.push_str(&format!(" --target {target}"));
        }
    }
    let cpus: BTreeSet<String> = machines.iter().filter_map(|&machine| cpu(machine)).collect();
    for cpu in cpus {
        command.push_str(&format!(" --cpu {cpu}"));
    }
    command
}

/// A machine as `--cpu` names it; `None`: it has no name there.
fn cpu(machine: Machine) -> Option<String> {
    if machine.arch != ARCH_AARCH64 {
        return machine.level().map(str::to_owned);
    }
    let has = |bit: &usize| machine.cpu_features >> bit & 1 == 1;
    let bits = (0..AARCH64_FEATURES.len()).filter(has);
    let names: String = bits.map(|bit| format!("+{}", AARCH64_FEATURES[bit])).collect();
    Some(format!("armv8-a{names}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifunc_abi::image::{EntryPart, ImageParts};

    fn slice(arch: u16, cpu_features: u64, name: &str) -> Arc<Slice> {
        let image = ImageParts {
            entries: vec![EntryPart::new(name)],
            arch,
            cpu_features,
            rx: vec![0xc3; 40],
            ..ImageParts::default()
        };
        let image = image.encode().unwrap();
        let id = *blake3::hash(&image).as_bytes();
        let machine = Machine { arch, cpu_features };
        Arc::new(Slice::new(machine, id, image, None))
    }

    fn x86_64(features: u64) -> Arc<Slice> {
        slice(ARCH_X86_64, features, "add")
    }

    fn slices(all: Vec<Arc<Slice>>) -> Result<Slices, LibraryError> {
        Slices::new(all, Path::new("add.so"))
    }

    #[test]
    fn a_machine_without_a_slice_is_told_what_to_build() {
        let (v3, arm, v2) = (x86_64(3), slice(ARCH_AARCH64, 0, "add"), x86_64(1));
        let both = [&*v3, &arm];
        let machine = |arch, cpu_features| Machine { arch, cpu_features };
        assert_eq!(for_machine(&both, machine(ARCH_X86_64, 7)), Ok(0));
        assert_eq!(for_machine(&both, machine(ARCH_AARCH64, 0)), Ok(1));
        let why = for_machine(&both, machine(ARCH_X86_64, 1)).unwrap_err();
        let expected = "the peer is x86-64-v2, and the library has slices for x86-64-v3, AArch64; help: `cargo ifunc build --target \
                        x86_64-unknown-linux-gnu --target aarch64-unknown-linux-gnu --cpu armv8-a --cpu x86-64-v2 --cpu x86-64-v3`";
        assert_eq!(why, expected);
        let why = for_machine(&[&v2, &v3], machine(ARCH_X86_64, 0)).unwrap_err();
        assert!(
            why.ends_with("`cargo ifunc build --cpu x86-64-v1 --cpu x86-64-v2 --cpu x86-64-v3`"),
            "{why}"
        );
        // The peer says better what it lacks.
        assert_eq!(for_machine(&[&v3], machine(ARCH_X86_64, 0)), Ok(0));
    }

    #[test]
    fn slices_of_one_library_agree() {
        let one = slices(vec![x86_64(0)]).unwrap();
        let two = slices(vec![x86_64(0), x86_64(1)]).unwrap();
        assert_eq!(*one.id(), one.all()[0].id);
        assert!(two.id() != one.id() && *two.id() != two.all()[1].id);
        let error = slices(vec![x86_64(0), slice(ARCH_X86_64, 3, "sub")]).unwrap_err();
        assert!(matches!(error, LibraryError::Slices { .. }));
        let error = error.to_string();
        assert!(
            error.contains(
                "the slice for x86-64-v3 in `add.so` is not one of the same ifuncs: its entries are other"
            ),
            "{error}"
        );
        let lies = Slice::new(Machine::default(), [0; 32], x86_64(0).image.clone(), None);
        let error = slices(vec![Arc::new(lies)]).unwrap_err().to_string();
        assert!(error.contains("its image is for x86-64-v1"), "{error}");
    }
}
