//! A target that is there: it says where, and serves until it is told nothing more.

use anyhow::Result;
use ifunc_bench_ifuncs::Tally;
use ifunc_rt::Target;

use crate::program::Starter;

pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    // SAFETY: the code that comes is that of `ifunc-bench-ifuncs`; who else could reach the address is a process of this user.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen(&format!("shm:ifunc-bench-code-{}", std::process::id()))?;
    starter.reply(&target.address())?;
    let stop = target.stop_handle();
    // The thread that serves stays on the processor that this role was given.
    std::thread::spawn(move || {
        while let Ok(Some(())) = starter.next() {}
        stop.stop();
    });
    target.serve(&mut Tally::default())?;
    Ok(())
}
