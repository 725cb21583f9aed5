//! The process of a tenant, from the target's side: sends it what it needs, and starts it again.
//!
//! One invocation of a tenant runs at a time. When its process has ended, the invocation under way is told why, and the next one
//! starts another process and installs what it needs.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ifunc_abi::ImageId;
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::{Failure, FaultDetail, Rejection, Status};
use ifunc_abi::symbols::RELEASE;

use super::buffer::{Buffer, CallError};
use super::callback::Ifunc;
use super::conversation::{Host, Nothing};
use super::exported::{self, Function, Import};
use super::objects::{Objects, TargetPointer};
use super::process::{GRACE, Lost, PATIENCE, Process};
use super::segment::{Area, Kind, Message};
use super::{Lent, NO_TARGET, Run, Runners, Tenant};
use crate::answer::{AnswerMemory, long_answer};
use crate::ended::{LogMessage, log_message};
use crate::held::take_held;
use crate::image_executor::Shared;
use crate::threads::in_milliseconds;
use crate::{EntryProperties, ValidImage};

/// The process of a tenant.
#[derive(Debug)]
pub(super) struct TenantProcess {
    runners: Arc<Runners>,
    tenant: Tenant,
    /// Number of the next image.
    next: AtomicU64,
    /// Images that were dropped.
    released: Mutex<Vec<u64>>,
    /// The functions of the host that its images import, by their numbers.
    functions: Mutex<Vec<Arc<Import>>>,
    /// Memory of the images.
    installed: Mutex<(usize, usize)>,
    /// Number of objects of the host that its invocations were given.
    objects: AtomicU64,
    /// Held during an invocation. `None`: it was not started, or has ended.
    process: Mutex<Option<Process>>,
    /// There was one before.
    is_restart: AtomicBool,
}

/// An image in the process of a tenant.
#[derive(Debug)]
pub(crate) struct RemoteImage {
    tenant: Arc<TenantProcess>,
    number: u64,
    /// Id, bytes, and the table of the functions that it imports.
    message: Box<[u8]>,
    /// Length of the table.
    table: usize,
    /// The functions that it imports, by their numbers.
    functions: Vec<(u64, Arc<Import>)>,
}

/// What an invocation in a runner process is given.
#[derive(Debug)]
pub(crate) struct RemoteInvocation<'a> {
    pub(crate) entry: &'a EntryProperties,
    /// Number of the entry in its image.
    pub(crate) index: usize,
    /// Address and length of the payload.
    pub(crate) payload: (*const u8, usize),
    /// Target arguments, and what they are to the ifunc.
    pub(crate) target: *mut c_void,
    pub(crate) lent: Lent,
    /// The target whose functions it may import.
    pub(crate) host: Option<Arc<Shared>>,
    pub(crate) sender: u64,
    /// How long it may run, if it has a limit of its own.
    pub(crate) run_time: Option<Duration>,
    /// How long answers may be.
    pub(crate) answers: Option<&'a Arc<dyn AnswerMemory>>,
}

/// What an invocation may ask.
struct OfInvocation<'a> {
    image: &'a RemoteImage,
    ifunc: &'a str,
    sender: u64,
    shared: Option<Arc<Shared>>,
    objects: Objects<'a>,
}

impl Host for OfInvocation<'_> {
    fn log(&self, message: &LogMessage<'_>) {
        log_message(self.ifunc, self.sender, message);
    }

    fn call(&self, number: u64, buffer: &mut Buffer, ifunc: &dyn Ifunc) -> Result<(), CallError> {
        let mut functions = self.image.functions.iter();
        // The policy granted the image these, and no others.
        let Some((_, import)) = functions.find(|(known, _)| *known == number) else {
            return Err(CallError::Breach(
                "a call of a function that its image does not import",
            ));
        };
        let found = match &*import.name {
            RELEASE => Some((release as *const () as usize, None)),
            name => self.shared.as_ref().and_then(|shared| {
                let symbols = shared.symbols.read().unwrap_or_else(PoisonError::into_inner);
                symbols.function(name, &import.text)
            }),
        };
        let Some((address, _lives)) = found else {
            let why = format!("`{}` is not exported any more, or has another type", import.name);
            return Err(CallError::Panicked(why));
        };
        let function = Function {
            import,
            number,
            address,
        };
        // SAFETY: the symbol has this text, so its address is that of what `#[ifunc::export]` makes of it, which lives as long as its
        // guard; the target arguments are what `Session::lend` was told.
        unsafe { exported::call(function, buffer, &self.objects, ifunc) }
    }
}

/// `__ifunc_release`: drops an object that the invocation gave up.
extern "C-unwind" fn release(object: *mut c_void) {
    drop(NonNull::new(object).and_then(take_held));
}

impl TenantProcess {
    pub(super) fn new(runners: Arc<Runners>, tenant: Tenant) -> Self {
        Self {
            runners,
            tenant,
            next: AtomicU64::new(0),
            released: Mutex::default(),
            functions: Mutex::default(),
            installed: Mutex::default(),
            objects: AtomicU64::new(0),
            process: Mutex::default(),
            is_restart: AtomicBool::new(false),
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn installed(&self) -> MutexGuard<'_, (usize, usize)> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn released(&self) -> MutexGuard<'_, Vec<u64>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Installs an image.
    ///
    /// # Errors
    /// The process refuses it, or does not start.
    pub(super) fn install(
        self: Arc<Self>,
        valid: &ValidImage<'_>,
        functions: Vec<Import>,
    ) -> Result<RemoteImage, Refusal> {
        let bytes = valid.bytes;
        let functions = self.numbered(functions);
        let lines = functions
            .iter()
            .map(|(number, import)| format!("{number}\t{}\t{}\n", import.name, import.text));
        let table = lines.collect::<String>();
        let len = size_of::<ImageId>() + bytes.len() + table.len();
        self.reserve(len)?;
        // From here on its drop counts it down.
        let image = RemoteImage {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            message: [&valid.id[..], bytes, table.as_bytes()].concat().into(),
            table: table.len(),
            functions,
            tenant: self,
        };
        let mut guard = image.tenant.process();
        let mut process = image.tenant.take_or_start(&mut guard)?;
        let installed = image.install_in(&mut process);
        match &installed {
            Err(Uninstalled::Lost(Lost(_, why))) => image.tenant.crashed(&process, why),
            _ => *guard = Some(process),
        }
        drop(guard);
        match installed {
            Ok(()) => Ok(image),
            Err(Uninstalled::Refused(refusal)) => Err(refusal),
            Err(Uninstalled::Lost(Lost(_, why))) => Err(Refusal::new(Rejection::Resources, why)),
        }
    }

    /// Counts an image whose message has `len` bytes.
    ///
    /// # Errors
    /// There is no room for it.
    fn reserve(&self, len: usize) -> Result<(), Refusal> {
        let settings = &self.runners.settings;
        if len > settings.lens.payload {
            let why = format!(
                "an image of {len} bytes with its id and its imports, and a runner process takes fewer"
            );
            return Err(Refusal::new(Rejection::TooLarge, why));
        }
        let (images, used) = &mut *self.installed();
        if *images >= settings.max_images || *used + len > settings.code_bytes {
            let why = "the runner process of this code is full; help: drop handles that are not needed, or `TargetBuilder::code_cache`";
            return Err(Refusal::new(Rejection::CacheFull, why));
        }
        (*images, *used) = (*images + 1, *used + len);
        self.runners.images.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The functions with their numbers. The host exports so many, so there are not more.
    fn numbered(&self, functions: Vec<Import>) -> Vec<(u64, Arc<Import>)> {
        let mut all = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = functions.into_iter().map(|import| {
            let is_same = |known: &Arc<Import>| known.name == import.name && known.text == import.text;
            let number = all.iter().position(is_same).unwrap_or_else(|| {
                all.push(Arc::new(import));
                all.len() - 1
            });
            (number as u64, Arc::clone(&all[number]))
        });
        numbered.collect()
    }

    /// Takes the process out, so that a panic on the way ends it, or starts one.
    ///
    /// # Errors
    /// It does not start.
    fn take_or_start(&self, process: &mut Option<Process>) -> Result<Process, Refusal> {
        if let Some(process) = process.take() {
            return Ok(process);
        }
        let tenant = &self.tenant;
        match Process::start(&self.runners.settings) {
            Ok((mut process, _)) => {
                let is_restart = self.is_restart.swap(true, Ordering::Relaxed);
                self.runners.count(|counts| {
                    counts.running += 1;
                    counts.restarts += u64::from(is_restart);
                });
                process.counted_by = Some(Arc::clone(&self.runners));
                tracing::debug!(target: crate::LOG, ?tenant, pid = process.child.id(), "started a runner process");
                Ok(process)
            }
            Err(why) => {
                tracing::debug!(target: crate::LOG, ?tenant, %why, "a runner process does not start");
                Err(Refusal::new(Rejection::Resources, why))
            }
        }
    }
}

impl TenantProcess {
    /// The process has ended, or was ended for what it did.
    fn crashed(&self, process: &Process, why: &str) {
        let (tenant, pid) = (&self.tenant, process.child.id());
        tracing::debug!(target: crate::LOG, ?tenant, pid, %why, "a runner process ended");
        self.runners.count(|counts| counts.crashes += 1);
    }
}

impl Drop for TenantProcess {
    fn drop(&mut self) {
        self.runners.tenant_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why an image is not installed in a process.
enum Uninstalled {
    Refused(Refusal),
    /// The process has ended.
    Lost(Lost),
}

impl RemoteImage {
    /// Bytes of memory in this process.
    pub(crate) fn footprint(&self) -> usize {
        self.message.len()
    }

    /// Installs it in a process that does not have it.
    fn install_in(&self, process: &mut Process) -> Result<(), Uninstalled> {
        let segment = process.segment();
        let deadline = Instant::now() + PATIENCE;
        let request = |process: &mut Process, message| {
            let done = process.request(&message, Some(deadline), &Nothing);
            done.map_err(Uninstalled::Lost)
        };
        // Dropped images first: their room may be needed.
        let mut gone = std::mem::take(&mut *self.tenant.released());
        gone.retain(|number| process.images.remove(number));
        for some in gone.chunks(segment.len_of(Area::Payload) / size_of::<u64>()) {
            let numbers: Vec<u8> = some.iter().flat_map(|number| number.to_le_bytes()).collect();
            segment.write(Area::Payload, 0, &numbers);
            request(process, Message::new(Kind::Release, [some.len() as u64]))?;
        }
        let len = self.message.len();
        segment.write(Area::Payload, 0, &self.message);
        let (image, table) = (len - self.table, self.table);
        let message = Message::new(Kind::Install, [self.number, image as u64, table as u64]);
        let (status, detail) = request(process, message)?;
        segment.trim(&process.file, Area::Payload, len);
        match status {
            Status::Executed => {
                process.images.insert(self.number);
                Ok(())
            }
            Status::Rejected(reason) => {
                let why = segment.note_text(detail as u64);
                Err(Uninstalled::Refused(Refusal::new(reason, why)))
            }
            Status::Failed(_) => {
                let lost = process.end_for_breach("a failure for an image");
                Err(Uninstalled::Lost(lost))
            }
        }
    }

    /// Runs an invocation, as [`Executor::run`](crate::Executor::run) does.
    ///
    /// # Safety
    /// The payload is readable until this returns.
    pub(crate) unsafe fn run(
        &self,
        invocation: RemoteInvocation<'_>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let mut guard = self.tenant.process();
        let mut process = self.tenant.take_or_start(&mut guard)?;
        let has = process.images.contains(&self.number);
        let installed = if has {
            Ok(())
        } else {
            self.install_in(&mut process)
        };
        let outcome = match installed {
            // SAFETY: the caller's promise.
            Ok(()) => unsafe { self.run_in(&mut process, invocation, answer) },
            Err(Uninstalled::Lost(lost)) => Err(lost),
            Err(Uninstalled::Refused(refusal)) => {
                *guard = Some(process);
                return Err(refusal.into());
            }
        };
        match outcome {
            Ok(outcome) => {
                *guard = Some(process);
                outcome
            }
            Err(Lost(why, text)) => {
                self.tenant.crashed(&process, &text);
                let detail = FaultDetail {
                    is_placed: false,
                    calls: &[],
                    text: &text,
                };
                Err(Box::new(Failed::new(Status::Failed(why), detail.encode())))
            }
        }
    }

    /// Runs an invocation in a process that has the image.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn run_in(
        &self,
        process: &mut Process,
        invocation: RemoteInvocation<'_>,
        answer: Option<&mut [u8]>,
    ) -> Result<Result<usize, Box<Failed>>, Lost> {
        let RemoteInvocation {
            entry,
            index,
            payload: (payload, size),
            target,
            lent,
            host,
            sender,
            run_time,
            answers,
        } = invocation;
        let copied = copied(target, lent);
        let segment = process.segment();
        if size > segment.len_of(Area::Payload) {
            let why = format!(
                "a payload of {} bytes, and a runner process takes {}",
                size,
                segment.len_of(Area::Payload)
            );
            return Ok(Err(Refusal::new(Rejection::TooLarge, why).into()));
        }
        // SAFETY: the caller's promise, and it fits.
        unsafe { segment.write_from(Area::Payload, 0, payload, size) };
        if let Some(target) = &copied {
            segment.write(Area::Target, 0, target);
        }
        let room = answer.as_ref().map_or(0, |answer| answer.len());
        let max_answer = answers
            .map_or(room, |answers| answers.max_answer(sender))
            .max(room);
        let most = segment.len_of(Area::Answer);
        let run = Run {
            image: self.number,
            entry: index as u32,
            is_awaited: answer.is_some(),
            payload: size as u64,
            target: copied.as_ref().map_or(NO_TARGET, |target| target.len() as u64),
            room: room.min(most) as u32,
            max_answer: max_answer.min(most) as u32,
            run_time: run_time.map_or(0, in_milliseconds),
            sender,
        };
        let usual = process.limit;
        process.limit = [usual, run_time].into_iter().flatten().min();
        let deadline = process.limit.and_then(overdue);
        let request = Message::new(Kind::Run, run.words());
        let target = match lent {
            Lent::Opaque { text, is_shared } => Some(TargetPointer {
                pointer: target,
                text,
                is_shared,
            }),
            Lent::Copied(_) => None,
        };
        let host = OfInvocation {
            image: self,
            ifunc: &entry.name,
            sender,
            shared: host,
            objects: Objects::new(target, &self.tenant.objects),
        };
        let (status, len) = process.request(&request, deadline, &host)?;
        process.limit = usual;
        segment.trim(&process.file, Area::Payload, size);
        match status {
            Status::Executed => {}
            Status::Failed(
                why @ (Failure::Payload
                | Failure::Panic
                | Failure::Fault
                | Failure::Deadline
                | Failure::StackLow
                | Failure::HostPanic
                | Failure::Answer
                | Failure::UnknownResult),
            ) => {
                let detail = segment.note(len);
                return Ok(Err(Box::new(Failed::new(Status::Failed(why), detail))));
            }
            Status::Failed(_) | Status::Rejected(_) => {
                return Err(process.end_for_breach("a status that is not one of an invocation"));
            }
        }
        if len > max_answer || len > most {
            return Err(process.end_for_breach("an answer that is longer than it may be"));
        }
        // It has ended well, so that what it wrote holds.
        if let Some(target) = copied {
            segment.read(Area::Target, target);
        }
        let outcome = match answer {
            None => Ok(0),
            Some(answer) if len <= answer.len() => {
                segment.read(Area::Answer, &mut answer[..len]);
                Ok(len)
            }
            Some(_) => Err(match answers {
                Some(of) => long_answer(of, len, |bytes| segment.read(Area::Answer, bytes)),
                None => Box::new(Failed::new(Status::Failed(Failure::Answer), Vec::new())),
            }),
        };
        segment.trim(&process.file, Area::Answer, len);
        Ok(outcome)
    }
}

impl Drop for RemoteImage {
    fn drop(&mut self) {
        self.tenant.released().push(self.number);
        let (images, used) = &mut *self.tenant.installed();
        (*images, *used) = (*images - 1, *used - self.message.len());
        self.tenant.runners.images.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When an invocation that begins now loses its process. The runner ends it at its limit; code that prevents that has a little longer.
/// `None`: never, as far as the clock goes.
fn overdue(limit: Duration) -> Option<Instant> {
    let longest = limit.saturating_add(GRACE.max(limit / 2));
    Instant::now().checked_add(longest)
}

/// The target arguments of an invocation, if they are copied.
fn copied<'a>(target: *mut c_void, lent: Lent) -> Option<&'a mut [u8]> {
    match lent {
        Lent::Opaque { .. } => None,
        // SAFETY: the caller of `Session::lend` promised that they are so many bytes, of which every content is valid, and that this
        // invocation alone uses them. A type without bytes may have any address.
        Lent::Copied(len) => Some(unsafe { std::slice::from_raw_parts_mut(target.cast(), len) }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::PAGE;
    use super::*;
    use crate::runner::segment::Lens;
    use crate::runner::signature::Signature;
    use crate::runner::{RunnerOptions, Settings};

    /// Runners none of which is started.
    fn runners(max_images: usize, code_bytes: usize, max_runners: usize) -> Arc<Runners> {
        Arc::new(Runners {
            settings: Settings {
                program: "there-is-none".into(),
                options: RunnerOptions::new().max_runners(max_runners),
                lens: Lens {
                    payload: PAGE,
                    target: PAGE,
                    answer: PAGE,
                },
                code_bytes,
                max_images,
                max_image_memory: PAGE,
                stack_bytes: PAGE,
                run_time: None,
            },
            tenants: Mutex::default(),
            tenant_count: std::sync::atomic::AtomicUsize::new(0),
            images: std::sync::atomic::AtomicUsize::new(0),
            counts: Mutex::default(),
            observer: Arc::new(()),
        })
    }

    fn image(tenant: &Arc<TenantProcess>, number: u64, len: usize) -> Result<RemoteImage, Refusal> {
        tenant.reserve(len)?;
        Ok(RemoteImage {
            tenant: Arc::clone(tenant),
            number,
            message: vec![0; len].into(),
            table: 0,
            functions: Vec::new(),
        })
    }

    fn reason<T>(outcome: Result<T, Refusal>) -> Option<Rejection> {
        outcome.err().map(|refusal| refusal.reason)
    }

    #[test]
    fn images_have_room_up_to_each_limit_and_give_it_back() {
        let runners = runners(2, PAGE + 100, 1);
        let tenant = runners.tenant(&Tenant::Connection(1)).unwrap();
        assert_eq!(reason(image(&tenant, 0, PAGE + 1)), Some(Rejection::TooLarge));
        let whole = image(&tenant, 1, PAGE).unwrap();
        assert_eq!(reason(image(&tenant, 2, 101)), Some(Rejection::CacheFull));
        let rest = image(&tenant, 3, 100).unwrap();
        assert_eq!(
            reason(image(&tenant, 4, 0)),
            Some(Rejection::CacheFull),
            "a third"
        );
        assert_eq!((runners.images(), *tenant.installed()), (2, (2, PAGE + 100)));
        drop(whole);
        assert_eq!((runners.images(), *tenant.installed()), (1, (1, 100)));
        drop(rest);
        assert_eq!((runners.images(), *tenant.installed()), (0, (0, 0)));
        assert_eq!(*tenant.released(), [1, 3]);
    }

    #[test]
    fn tenants_have_a_process_each_up_to_the_limit() {
        let runners = runners(1, PAGE, 2);
        let name = |name: &str| Tenant::Key(name.to_owned());
        let [one, other] = ["one", "other"].map(|of| runners.tenant(&name(of)).unwrap());
        assert!(Arc::ptr_eq(&one, &runners.tenant(&name("one")).unwrap()));
        assert!(!Arc::ptr_eq(&one, &other));
        assert_eq!(reason(runners.tenant(&name("third"))), Some(Rejection::Quota));
        assert_eq!(runners.tenants().len(), 2);
        drop(other);
        let third = runners.tenant(&name("third")).unwrap();
        // Those that are not used any more are forgotten.
        assert_eq!(runners.tenants().len(), 2);
        assert_eq!(reason(runners.tenant(&name("other"))), Some(Rejection::Quota));
        drop((one, third));
        assert_eq!(runners.tenant_count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_function_has_one_number_for_as_long_as_its_type_is_the_same() {
        let runners = runners(1, PAGE, 1);
        let tenant = runners.tenant(&Tenant::Connection(1)).unwrap();
        let numbers = |functions: &[(&str, &str)]| -> Vec<u64> {
            let functions = functions.iter().map(|(name, text)| Import {
                name: (*name).to_owned(),
                text: (*text).to_owned(),
                signature: Signature::of("fn()").unwrap(),
            });
            let numbered = tenant.numbered(functions.collect());
            numbered.into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(numbers(&[("a", "fn()"), ("b", "fn()"), ("a", "fn()")]), [0, 1, 0]);
        assert_eq!(
            numbers(&[("b", "fn(u32)"), ("b", "fn()"), ("c", "fn()")]),
            [2, 1, 3]
        );
    }
}
