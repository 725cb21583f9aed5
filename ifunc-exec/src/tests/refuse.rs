//! A kernel that refuses a system call.

/// Refuses a system call to this thread and to those that it starts, as a container's filter may.
pub(crate) fn refuse(call: libc::c_long) {
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
}
