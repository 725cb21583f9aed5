//! Making a change.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ifunc_abi::image::ImageFlags;
use ifunc_abi::refusal::Refusal;

use super::latest::Change;
use super::plan::Plan;
use super::{ExportError, Update};
use crate::InstalledImage;
use crate::entrance::Access;
use crate::gate::ChangeByThisThread;
use crate::image::imports::Imported;
use crate::image_executor::Shared;
use crate::symbols::{Bound, HostSymbols, Symbol};

/// An installed image that a change concerns.
struct Concerned {
    image: Arc<InstalledImage>,
    /// What its imports are bound to after the change, or why they are not.
    bound: Result<Bound, Refusal>,
    /// Whether it differs from the GOT before, or there was none.
    is_different: bool,
}

impl Concerned {
    fn access(&self) -> Access {
        match &self.bound {
            Ok(_) => Access::Open,
            Err(why) => Access::Refused(why.clone()),
        }
    }
}

/// Images that are closed until this is dropped.
struct Held<'a>(Vec<(&'a InstalledImage, Access)>);

impl<'a> Held<'a> {
    fn new(images: impl Iterator<Item = &'a InstalledImage>) -> Self {
        Self(
            images
                .map(|image| (image, image.set_access(Access::Held)))
                .collect(),
        )
    }

    /// They have been given the access that they have from now on.
    fn release(mut self) {
        self.0.clear();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (image, before) in self.0.drain(..) {
            image.set_access(before);
        }
    }
}

impl Shared {
    /// Makes the changes of an update. `whole`: between invocations.
    pub(super) fn change(&self, update: Update, whole: bool, timeout: Duration) -> Result<(), ExportError> {
        let _this = ChangeByThisThread::begin();
        let began = Instant::now();
        let deadline = began + timeout;
        let mut number = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut symbols = self.symbols.write().unwrap_or_else(PoisonError::into_inner);
        let plan = Plan::of(update, &symbols)?;
        let concerned = self.concerned(&plan, &symbols)?;
        plan.name_types(&mut self.names())?;

        let different: Vec<_> = concerned
            .iter()
            .filter(|concerned| concerned.is_different)
            .collect();
        let held = if whole && !different.is_empty() {
            Some(self.hold(&different, deadline, timeout)?)
        } else {
            None
        };
        symbols.note_unguarded(plan.changes.has_unguarded());
        for Concerned { image, bound, .. } in &different {
            let Ok(Bound {
                got,
                may_set_float_control,
            }) = bound
            else {
                continue;
            };
            if *may_set_float_control {
                image.door.expect_float_control();
            }
            for (index, address) in got.iter().enumerate() {
                image.got.set(index, *address);
            }
        }
        // Only now: an invocation must not find some images changed and others not.
        for concerned in &different {
            concerned.image.set_access(concerned.access());
        }
        held.into_iter().for_each(Held::release);
        let pinned = different
            .iter()
            .any(|concerned| concerned.image.flags.contains(ImageFlags::PINNED));
        let report = Report::of(&plan, &symbols, different.len());
        *number += 1;
        let change = Change {
            number: *number,
            began,
        };
        self.observer.exports_changed(change.number);
        plan.replaced_libraries
            .iter()
            .for_each(|library| library.close_with_this());
        let replaced = symbols.apply(plan.changes);
        drop(symbols);
        drop(concerned);
        drop(number);
        report.log();

        if pinned {
            // It may be called at any time, and not only by invocations.
            replaced.into_iter().for_each(std::mem::forget);
            return Ok(());
        }
        let mut running = self.threads.running();
        if let Some(running) = &mut running {
            if replaced.is_empty() {
                self.threads.remove_ended(running);
            } else {
                self.threads.wait(running, deadline);
            }
            self.latest_change.made(change, running.clone());
        }
        match running {
            Some(running) if running.is_empty() => drop(replaced),
            _ if replaced.is_empty() => {}
            running => self.replaced.keep(replaced, running),
        }
        self.drop_replaced();
        Ok(())
    }

    /// Closes images and waits until no invocation runs that began before.
    fn hold<'a>(
        &self,
        images: &[&'a Concerned],
        deadline: Instant,
        timeout: Duration,
    ) -> Result<Held<'a>, ExportError> {
        let held = Held::new(images.iter().map(|concerned| &*concerned.image));
        let mut running = self.threads.running().ok_or(ExportError::NoBarrier)?;
        if !self.threads.wait(&mut running, deadline) {
            return Err(ExportError::Timeout(timeout));
        }
        Ok(held)
    }

    /// The installed images that the plan concerns. Evicts those that it would not suit, if no connection has bound them.
    fn concerned(&self, plan: &Plan, symbols: &HostSymbols) -> Result<Vec<Concerned>, ExportError> {
        let after = plan.after(symbols);
        let mut cache = self.cache();
        let mut concerned = Vec::new();
        let mut in_data: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for image in cache.images(|image| after.may_concern(&image.imports)) {
            let bound = after.resolve(&image.imports);
            let got = bound.as_ref().map(|bound| &bound.got);
            let was_refused = image.door.refusal().is_some();
            let entries = || image.imports.symbols.iter().zip(image.got.iter());
            let moves = |import: &Imported, before: usize, after: Option<usize>| {
                import.is_in_data && after != Some(before)
            };
            let (is_different, moved) = match got {
                Ok(got) => {
                    let mut all = entries().zip(got);
                    let is_different = image.got.iter().ne(got.iter().copied());
                    let moved = all.find(|((import, before), after)| moves(import, *before, Some(**after)));
                    (is_different || was_refused, moved.map(|((import, _), _)| import))
                }
                // What is removed comes back at another address.
                Err(_) => {
                    let mut all = entries();
                    let moved = all.find(|(import, before)| {
                        moves(import, *before, after.symbol(&import.name).map(Symbol::address))
                    });
                    (true, moved.map(|(import, _)| import))
                }
            };
            let moved = moved.map(|import| import.name.to_string());
            let image = if moved.is_some() || got.is_err() {
                match cache.evict(image) {
                    None => continue,
                    Some(image) => image,
                }
            } else {
                image
            };
            if let Some(symbol) = moved {
                in_data.entry(symbol).or_default().push(image.names());
                continue;
            }
            if let Err(why) = &bound
                && !was_refused
                && plan.must_suit(&image.imports)
            {
                return Err(ExportError::Image {
                    image: image.names(),
                    reason: why.reason,
                    detail: why.detail.to_string(),
                });
            }
            concerned.push(Concerned {
                image,
                bound,
                is_different,
            });
        }
        match in_data.pop_first() {
            None => Ok(concerned),
            Some((name, images)) => Err(ExportError::AddressInData { name, images }),
        }
    }
}

/// What is logged of a change.
struct Report {
    lines: Vec<(&'static str, String)>,
    images: usize,
}

impl Report {
    fn of(plan: &Plan, before: &HostSymbols, images: usize) -> Self {
        let symbols = plan.changes.symbols.iter().map(|(name, after)| {
            let what = match (before.has(name), after) {
                (true, Some(_)) => "export replaced",
                (true, None) => "export removed",
                (false, _) => "export added",
            };
            (what, name.clone())
        });
        let libraries = plan.changes.libraries.keys();
        let libraries = libraries.map(|soname| ("library loaded", soname.clone()));
        Self {
            lines: symbols.chain(libraries).collect(),
            images,
        }
    }

    fn log(self) {
        for (what, name) in self.lines {
            tracing::info!(target: crate::LOG, name, images = self.images, "{what}");
        }
    }
}
