//! Installing one image: judge, relocate in a private buffer, write into the arena.

use std::ffi::c_void;

use ifunc_abi::image::{Image, ImageError, ImageFlags, ImportFlags, Relocation};
use ifunc_abi::status::Rejection;
use ifunc_abi::{Fingerprint, ImageId};

use super::Refusal;
use super::names::HostNames;
use super::sets::NamedSet;
use crate::debug::{self, Debugger, Described};
use crate::exec::arena::{Arena, ArenaError, PAGE, Range};
use crate::exec::{ARCH, cpu_features, explain_lacking_cpu};

/// The type of target arguments that a target is polled with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetType {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) text: &'static str,
}

/// An installed image. Its memory is freed through [`cache`](super::cache) only.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) id: ImageId,
    pub(crate) name: String,
    pub(crate) flags: ImageFlags,
    pub(crate) payload_align: usize,
    /// Fingerprint of the target type it takes; 0: any.
    pub(crate) target: Fingerprint,
    /// Address of `X_main`.
    pub(crate) main: *const c_void,
    /// What debuggers know of it.
    pub(crate) debug: Described,
    code: Range,
    got: Option<Range>,
}

// SAFETY: addresses of the arena, which the target owns together with this.
unsafe impl Send for Installed {}
// SAFETY: immutable.
unsafe impl Sync for Installed {}

impl Installed {
    /// Whether a payload may lie there.
    #[inline]
    pub(crate) fn is_aligned(&self, payload: *const u8) -> bool {
        // A division costs as much as the rest of a small invocation.
        debug_assert!(self.payload_align.is_power_of_two());
        payload.addr() & (self.payload_align - 1) == 0
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nothing may run in the image or reach it any more.
    pub(crate) unsafe fn free(self, arena: &mut Arena) {
        drop(self.debug);
        // SAFETY: the caller's promise; the GOT is reached through the image only.
        unsafe {
            arena.free(self.code);
            if let Some(got) = self.got {
                arena.free(got);
            }
        }
    }

    /// Bytes of the arena that it takes.
    pub(crate) fn footprint(&self) -> usize {
        self.code.len() + self.got.as_ref().map_or(0, Range::len)
    }
}

/// What an image asks of any target on this machine. Nothing is changed by it.
pub(crate) fn judge(bytes: &[u8], max_memory: usize) -> Result<Image<'_>, Refusal> {
    let image = Image::parse(bytes).map_err(|error| {
        let reason = match error {
            ImageError::AbiVersion { .. } => Rejection::AbiVersion,
            _ => Rejection::BadImage,
        };
        Refusal::new(reason, error.to_string())
    })?;
    if image.arch() != ARCH {
        let (found, here) = (image.arch(), ARCH);
        return Err(Refusal::new(
            Rejection::Architecture,
            format!("the image is for ELF machine {found}, this target is {here}"),
        ));
    }
    if let Some(lacking) = explain_lacking_cpu(image.cpu_features(), cpu_features()) {
        return Err(Refusal::new(Rejection::CpuFeature, lacking));
    }
    let memory = image
        .rw_range()
        .map_or(image.rx().len(), |(at, len)| at as usize + len as usize);
    if memory > max_memory {
        return Err(Refusal::new(
            Rejection::TooLarge,
            format!("the image takes {memory} bytes of memory, the limit is {max_memory}"),
        ));
    }
    Ok(image)
}

/// The GOT: one address per import, or what this target does not provide.
pub(crate) fn resolve(image: &Image<'_>, names: &HostNames) -> Result<Vec<usize>, Refusal> {
    let names = names.with(image.needed())?;
    let mut got = Vec::with_capacity(image.imports().len());
    let mut missing = Vec::new();
    let mut differing = Vec::new();
    for import in image.imports() {
        match names.get(import.symbol) {
            None if import.flags.contains(ImportFlags::WEAK) => got.push(0),
            None => missing.push(match NamedSet::of(import.symbol) {
                None => import.symbol.to_owned(),
                Some(set) => format!("{} {}", import.symbol, set.name()),
            }),
            Some(host) => {
                if let Some((text, fingerprint)) = host.signature
                    && import.fingerprint != 0
                    && import.fingerprint != fingerprint
                {
                    differing.push(format!("{} {text}", import.symbol));
                }
                got.push(host.address.addr());
            }
        }
    }
    if !missing.is_empty() {
        return Err(Refusal::listing(Rejection::MissingImport, missing));
    }
    if !differing.is_empty() {
        return Err(Refusal::listing(Rejection::ImportSignature, differing));
    }
    Ok(got)
}

/// Writes an image that was judged into the arena.
pub(crate) fn install(
    arena: &mut Arena,
    debugger: &Debugger,
    id: ImageId,
    image: &Image<'_>,
    got: &[usize],
) -> Result<Installed, ArenaError> {
    let got = match got {
        [] => None,
        addresses => {
            let bytes: Vec<u8> = addresses
                .iter()
                .flat_map(|address| address.to_le_bytes())
                .collect();
            let range = arena.allocate(bytes.len(), 8, false)?;
            if let Err(error) = arena.write(&range, &bytes) {
                // SAFETY: nothing knows the address yet.
                unsafe { arena.free(range) };
                return Err(error);
            }
            Some((range, addresses))
        }
    };
    let result = place(
        arena,
        image,
        got.as_ref().map(|(range, addresses)| (range, *addresses)),
    );
    let got = got.map(|(range, _)| range);
    match result {
        Ok((code, bytes)) => Ok(Installed {
            debug: debugger.installed(&debug::Place {
                id: &id,
                image,
                base: arena.address(&code),
                code: &bytes,
            }),
            id,
            name: image.name().to_owned(),
            flags: image.flags(),
            payload_align: image.payload_align(),
            target: image.target(),
            main: (arena.address(&code) + image.entry() as usize) as *const c_void,
            code,
            got,
        }),
        Err(error) => {
            if let Some(got) = got {
                // SAFETY: no code refers to the GOT: it was not installed.
                unsafe { arena.free(got) };
            }
            Err(error)
        }
    }
}

fn place(
    arena: &mut Arena,
    image: &Image<'_>,
    got: Option<(&Range, &[usize])>,
) -> Result<(Range, Vec<u8>), ArenaError> {
    let rw = image.rw_range().map(|(at, len)| (at as usize, len as usize));
    let (len, align) = match rw {
        Some((at, len)) => (at + len, PAGE),
        None => (image.rx().len(), image.rx_align()),
    };
    let mut range = arena.allocate(len, align, rw.is_some())?;
    let base = arena.address(&range);
    let (got_address, addresses) = got.map_or((0, &[][..]), |(range, addresses)| {
        (arena.address(range), addresses)
    });
    let (rx_bytes, rw_bytes) = relocate(image, base, got_address, addresses);
    let written = arena.write(&range, &rx_bytes).and_then(|()| match rw {
        Some((at, len)) => arena.map_anonymous(&mut range, at, len, &rw_bytes),
        None => Ok(()),
    });
    match written {
        Ok(()) => Ok((range, rx_bytes)),
        Err(error) => {
            // SAFETY: nothing knows the address yet.
            unsafe { arena.free(range) };
            Err(error)
        }
    }
}

/// Both parts of an image as they are at `base`. [`Image::parse`] has seen to it that every offset is inside.
fn relocate(image: &Image<'_>, base: usize, got: usize, imports: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let (mut rx, mut rw) = (image.rx().to_vec(), image.rw().to_vec());
    let rw_at = image.rw_range().map_or(usize::MAX, |(at, _)| at as usize);
    let mut put = |offset: usize, value: usize| {
        let (part, at) = if offset < rw_at {
            (&mut rx, offset)
        } else {
            (&mut rw, offset - rw_at)
        };
        part[at..at + 8].copy_from_slice(&(value as u64).to_le_bytes());
    };
    if let Some(slot) = image.slot() {
        put(slot as usize, got);
    }
    for relocation in image.relocations() {
        match relocation {
            Relocation::Relative { offset, addend } => {
                put(offset as usize, base.wrapping_add_signed(addend as isize))
            }
            Relocation::Import {
                offset,
                import,
                addend,
            } => {
                put(
                    offset as usize,
                    imports[import as usize].wrapping_add_signed(addend as isize),
                );
            }
        }
    }
    (rx, rw)
}
