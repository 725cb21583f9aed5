//! A kernel that refuses a system call, and one that does not know how.

/// Whether this is a process of an emulator, qemu-user: it knows no filters of system calls. Tests of x86-64 are never emulated.
pub(crate) fn is_emulated() -> bool {
    // SAFETY: asks for a state.
    cfg!(not(target_arch = "x86_64")) && unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) } < 0
}

/// Refuses a system call to this thread and to those that it starts, as a container's filter may. `false`: an emulator does not know how.
#[must_use]
pub(crate) fn refuse(call: libc::c_long) -> bool {
    if is_emulated() {
        eprintln!("SKIPPED: this emulator does not filter system calls");
        return false;
    }
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let (equal, end) = (
        (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        libc::BPF_RET as u16,
    );
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut steps = [
        // The number of the system call is the first word that a filter reads.
        step(load, 0, 0),
        step(equal, 1, call as u32),
        step(end, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(end, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the filter, which outlives the calls.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
    };
    assert_eq!(refused, 0, "{}", std::io::Error::last_os_error());
    true
}
