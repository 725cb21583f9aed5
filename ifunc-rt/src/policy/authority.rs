//! By whose authority code runs: that of a key, or of a source whose unsigned code is accepted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc_abi::refusal::Refusal;

use super::{Allowance, Grant, Meter};

/// By whose authority code runs, what that grants, and what it uses of that.
#[derive(Debug)]
pub(crate) struct Authority {
    /// The name of the key; `None`: it is unsigned.
    signer: Option<String>,
    /// For messages.
    whose: String,
    grant: Grant,
    meter: Arc<Meter>,
}

impl Authority {
    /// `before`: the same authority by an earlier policy, which has counted.
    pub(super) fn new(signer: Option<String>, grant: Grant, before: Option<&Arc<Self>>) -> Arc<Self> {
        let whose = match &signer {
            Some(name) => format!("code of the key `{name}`"),
            None => "unsigned code".to_owned(),
        };
        let meter = match before {
            Some(before) => Arc::clone(&before.meter),
            None => Meter::new(whose.clone(), grant.quotas),
        };
        Arc::new(Self {
            signer,
            whose,
            grant,
            meter,
        })
    }

    /// The name of the key that signed; `None`: the code is unsigned.
    pub(crate) fn signer(&self) -> Option<&str> {
        self.signer.as_deref()
    }

    /// Counts an attempt to install an image that has `len` bytes with what accompanies it.
    pub(super) fn attempt(&self, len: usize) -> Result<(), Refusal> {
        self.meter.attempt(len, Instant::now())
    }

    /// Whether an image may import what it imports.
    pub(super) fn grants(&self, imports: &[&str], needed: &[&str]) -> Result<(), Refusal> {
        self.grant.admits(&self.whose, imports, needed)
    }

    /// Lets the quotas of this grant hold for what was counted before it.
    pub(super) fn settle(&self) {
        self.meter.set_quotas(self.grant.quotas);
    }

    /// What all of its code uses together.
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Whether each invocation has to be counted or measured.
    fn limits_invocations(&self) -> bool {
        self.grant.quotas.limits_invocations()
    }
}

/// Whose quotas the invocations of an image count against: those of the authority by which it runs, if they limit invocations, and
/// those of an allowance.
#[derive(Debug)]
pub(crate) struct Limited {
    authority: Option<Arc<Authority>>,
    allowance: Option<Allowance>,
}

impl Limited {
    /// `None`: nothing limits them.
    pub(crate) fn new(authority: &Arc<Authority>, allowance: Option<&Allowance>) -> Option<Self> {
        let limited = Self {
            authority: authority.limits_invocations().then(|| Arc::clone(authority)),
            allowance: allowance.cloned(),
        };
        (limited.authority.is_some() || limited.allowance.is_some()).then_some(limited)
    }

    /// The name of the key that signed, for logs.
    pub(crate) fn signer(&self) -> Option<&str> {
        self.authority.as_ref()?.signer()
    }

    fn meters(&self) -> impl Iterator<Item = &Arc<Meter>> {
        let of_authority = self.authority.iter().map(|authority| &authority.meter);
        of_authority.chain(self.allowance.iter().map(Allowance::meter))
    }

    /// Begins an invocation with a payload of `payload` bytes. Returns how long it may run, too.
    ///
    /// # Errors
    /// A quota is used up.
    pub(crate) fn begin(&self, payload: usize) -> Result<(Option<Duration>, [Option<Running>; 2]), Refusal> {
        let (mut shortest, mut running) = (Duration::MAX, [None, None]);
        for (meter, running) in self.meters().zip(&mut running) {
            meter.admits_payload(payload)?;
            let (run_time, began) = meter.begin()?;
            shortest = shortest.min(run_time);
            *running = Some(Running(Arc::clone(meter), began));
        }
        Ok(((shortest != Duration::MAX).then_some(shortest), running))
    }

    /// Whose quotas limit the time of an invocation, if one does.
    pub(crate) fn of_run_time(&self) -> Option<&str> {
        let limits = |meter: &&Arc<Meter>| meter.quotas().run_time != Duration::MAX;
        self.meters().find(limits).map(|meter| meter.whose())
    }

    /// Why an invocation with an answer of `len` bytes fails.
    pub(crate) fn exceeded_by_answer(&self, len: usize) -> String {
        let least = self.meters().min_by_key(|meter| meter.quotas().answer_bytes);
        let (whose, max) = (least.map_or("", |meter| meter.whose()), self.max_answer());
        format!(
            "{whose} may answer {max} bytes, and this answer has {len}; help: `answer_bytes` of the quotas in the target's policy"
        )
    }

    /// Length of the longest answer.
    pub(crate) fn max_answer(&self) -> usize {
        let answers = self.meters().map(|meter| meter.quotas().answer_bytes);
        answers.min().unwrap_or(usize::MAX)
    }
}

/// An invocation that has begun; dropped, it has ended.
#[derive(Debug)]
pub(crate) struct Running(Arc<Meter>, Option<Instant>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}
