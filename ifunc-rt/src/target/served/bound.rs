//! Entries of installed images, as a connection has bound them.

use std::sync::Arc;

use ifunc_exec::InstalledEntry;
use ifunc_proto::host::Refusal;

use crate::observe::{HandleCounters, HandleMetrics};
use crate::policy::{Allowance, Authority, Limited, Readmission, Rules, SourceInfo};
use crate::target::accept::Charges;
use crate::target::argument::Argument;
use crate::target::companions;
use crate::travel::sent::Terms;

/// An entry of an installed image and its counters for this connection.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(in crate::target) counted: Counted,
    /// Apart: what each invocation uses is in one cache line.
    rest: Box<Rest>,
}

// The table of bindings adds a word.
const _: () = assert!(size_of::<Bound>() + size_of::<u64>() <= 64);

/// What invocations of a bound entry do not use.
#[derive(Debug)]
struct Rest {
    metrics: HandleMetrics,
    /// What the next policy asks of it. `None`: it runs by the authority of this node.
    by: Option<InstalledBy>,
}

impl Bound {
    pub(super) fn new(counted: Counted, metrics: HandleMetrics, by: Option<InstalledBy>) -> Self {
        Self {
            counted,
            rest: Box::new(Rest { metrics, by }),
        }
    }

    pub(super) fn metrics(&self) -> &HandleMetrics {
        &self.rest.metrics
    }

    /// Applies a policy: by whose authority the entry runs from now on, and which allowance it uses. One that runs by the authority of
    /// this node stays as it is.
    ///
    /// # Errors
    /// Why it runs no more.
    pub(super) fn readmit(&mut self, source: &SourceInfo, rules: &Rules) -> Result<(), Refusal> {
        let Some(by) = &mut self.rest.by else {
            return Ok(());
        };
        let (authority, allowance) = by.readmit(&self.counted, source, rules)?;
        self.counted.limit_by(&authority, allowance.as_ref());
        by.authority = authority;
        Ok(())
    }

    /// Who signed the image, if the policy that admitted it knew the key.
    pub(super) fn signer(&self) -> Option<&str> {
        self.rest.by.as_ref()?.authority.signer()
    }
}

/// By what a source's image was installed.
#[derive(Debug)]
pub(super) struct InstalledBy {
    pub(super) authority: Arc<Authority>,
    /// The key that signed it, whether the policy knows it or not.
    pub(super) signed_by: Option<[u8; 32]>,
    /// The size of the image.
    pub(super) len: usize,
    /// What the image counts, until its last entry is released.
    pub(super) _charges: Arc<Charges>,
}

impl InstalledBy {
    /// By whose authority the image runs from now on, with what accompanies it, and which allowance it uses beside that.
    ///
    /// # Errors
    /// Why it runs no more.
    fn readmit(
        &self,
        counted: &Counted,
        source: &SourceInfo,
        rules: &Rules,
    ) -> Result<(Arc<Authority>, Option<Allowance>), Refusal> {
        let image = counted.entry.image();
        let names = image.entries.iter().map(|entry| &*entry.name);
        let readmitted = rules.readmit(Readmission {
            source,
            authority: &self.authority,
            signed_by: self.signed_by.as_ref(),
            id: &image.id,
            len: self.len,
            names: &names.collect::<Vec<_>>(),
            imports: &image.import_names().collect::<Vec<_>>(),
            needed: &image.library_names().collect::<Vec<_>>(),
        })?;
        if let Some(kept) = counted.terms.as_ref().and_then(|terms| terms.companions.as_ref()) {
            companions::readmit(kept, source, rules, &self.authority)?;
        }
        Ok(readmitted)
    }
}

/// An entry of an installed image, what counts its invocations, and what every one of them would compute again.
#[derive(Clone, Debug)]
pub(in crate::target) struct Counted {
    pub(super) entry: Arc<InstalledEntry>,
    pub(super) counters: Arc<HandleCounters>,
    /// The [key](Argument::key) of the target arguments that the entry was found to suit, or [`LIMITED`].
    pub(super) suits: u64,
    /// Bits that are 0 in the address of a payload that is used in place.
    pub(super) misplaced: usize,
    /// On what terms each invocation runs, and what it sends.
    terms: Option<Arc<Terms>>,
}

/// No target arguments have this key: each invocation looks at its quotas, and at what it is lent in a runner process. Others pay
/// nothing for that.
const LIMITED: u64 = 0;

impl Counted {
    /// An entry that was accepted for these target arguments.
    pub(super) fn new(
        entry: Arc<InstalledEntry>,
        counters: Arc<HandleCounters>,
        argument: &Argument,
        copies_payloads: bool,
        terms: Option<Arc<Terms>>,
    ) -> Self {
        let misplaced = if copies_payloads {
            usize::MAX
        } else {
            entry.payload_align - 1
        };
        let suits = match entry.image().is_remote() {
            true => LIMITED,
            false => argument.key,
        };
        let counted = Self {
            entry,
            counters,
            suits,
            misplaced,
            terms: None,
        };
        counted.on_terms(terms)
    }

    /// Runs each invocation on these terms.
    pub(in crate::target) fn on_terms(mut self, terms: Option<Arc<Terms>>) -> Self {
        self.set_terms(terms);
        self
    }

    fn set_terms(&mut self, terms: Option<Arc<Terms>>) {
        self.terms = terms;
        if self.limited().is_some() {
            self.suits = LIMITED;
        }
    }

    /// On what terms an invocation runs.
    pub(in crate::target) fn terms(&self) -> Option<Arc<Terms>> {
        self.terms.clone()
    }

    /// Whose quotas each invocation counts against.
    pub(super) fn limited(&self) -> Option<&Limited> {
        self.terms.as_ref()?.limited.as_ref()
    }

    /// Counts each invocation against the quotas of this authority from now on, if it limits them, and against those of the allowance.
    fn limit_by(&mut self, authority: &Arc<Authority>, allowance: Option<&Allowance>) {
        let companions = self.terms.as_ref().and_then(|terms| terms.companions.clone());
        self.set_terms(Terms::new(Limited::new(authority, allowance), companions));
    }
}

/// The index of an entry in its image.
pub(super) fn index_of(entry: &InstalledEntry) -> u8 {
    let entries = &entry.image().entries;
    let index = entries.iter().position(|other| other.main == entry.main_offset());
    index.unwrap_or_default() as u8
}
