//! Images whose machine code is written out here.

use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageParts, ImportFlags, ImportPart};

/// An image of this code.
pub(crate) fn image(name: &str, rx: &[u8]) -> ImageParts {
    ImageParts {
        entries: vec![EntryPart::new(name)],
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        rx: rx.to_vec(),
        ..ImageParts::default()
    }
}

/// Adds the payload to the target arguments and answers the sum.
pub(crate) const ADD: &[u8] = &[
    0x48, 0x8b, 0x07, // mov rax, [rdi]
    0x48, 0x03, 0x02, // add rax, [rdx]
    0x48, 0x89, 0x02, // mov [rdx], rax
    0x48, 0x8b, 0x79, 0x10, // mov rdi, [rcx+16]
    0x48, 0x89, 0x07, // mov [rdi], rax
    0x48, 0xc7, 0x41, 0x20, 8, 0, 0, 0, // mov qword [rcx+32], 8
    0x31, 0xc0, 0xc3, // xor eax, eax; ret
];

/// Makes the system call whose number and six arguments are the payload, and answers its result.
pub(crate) const CALLS: &[u8] = &[
    0x53, // push rbx
    0x48, 0x89, 0xcb, // mov rbx, rcx
    0x48, 0x8b, 0x07, // mov rax, [rdi]
    0x48, 0x8b, 0x77, 0x10, // mov rsi, [rdi+16]
    0x48, 0x8b, 0x57, 0x18, // mov rdx, [rdi+24]
    0x4c, 0x8b, 0x57, 0x20, // mov r10, [rdi+32]
    0x4c, 0x8b, 0x47, 0x28, // mov r8, [rdi+40]
    0x4c, 0x8b, 0x4f, 0x30, // mov r9, [rdi+48]
    0x48, 0x8b, 0x7f, 0x08, // mov rdi, [rdi+8]
    0x0f, 0x05, // syscall
    0x48, 0x8b, 0x4b, 0x10, // mov rcx, [rbx+16]
    0x48, 0x89, 0x01, // mov [rcx], rax
    0x48, 0xc7, 0x43, 0x20, 8, 0, 0, 0, // mov qword [rbx+32], 8
    0x31, 0xc0, 0x5b, 0xc3, // xor eax, eax; pop rbx; ret
];

/// Writes 7 to the address that is the payload.
pub(crate) const POKES: &[u8] = &[
    0x48, 0x8b, 0x07, // mov rax, [rdi]
    0x48, 0xc7, 0x00, 7, 0, 0, 0, // mov qword [rax], 7
    0x31, 0xc0, 0xc3, // xor eax, eax; ret
];

/// Adds 1 to the target arguments, and then has no valid instruction.
pub(crate) const CHANGES_AND_FAILS: &[u8] = &[0x48, 0xff, 0x02, 0x0f, 0x0b];
pub(crate) const DIVIDES_BY_ZERO: &[u8] = &[0x31, 0xc9, 0xf7, 0xf1];
pub(crate) const RECURSES: &[u8] = &[0xe8, 0xfb, 0xff, 0xff, 0xff];
/// Jumps to the address that is the payload.
pub(crate) const JUMPS: &[u8] = &[0xff, 0x27];
pub(crate) const LOOPS: &[u8] = &[0xeb, 0xfe];

/// Blocks the signals whose mask is the payload, and does not end.
pub(crate) const IGNORES_SIGNALS: &[u8] = &[
    0x48, 0x89, 0xfe, // mov rsi, rdi
    0x31, 0xff, 0x31, 0xd2, // xor edi, edi; xor edx, edx
    0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8
    0xb8, 14, 0, 0, 0, // mov eax, SYS_rt_sigprocmask
    0x0f, 0x05, 0xeb, 0xfe, // syscall; jmp $
];

/// Logs the payload.
pub(crate) const LOGS: &[u8] = &[
    0x48, 0x89, 0xfa, // mov rdx, rdi
    0x48, 0x8b, 0x41, 0x28, // mov rax, [rcx+40]
    0x48, 0x89, 0xcf, // mov rdi, rcx
    0x48, 0x89, 0xf1, // mov rcx, rsi
    0xbe, 3, 0, 0, 0, // mov esi, 3
    0x48, 0x83, 0xec, 8, // sub rsp, 8
    0xff, 0xd0, // call rax
    0x48, 0x83, 0xc4, 8, // add rsp, 8
    0x31, 0xc0, 0xc3, // xor eax, eax; ret
];

fn import(symbol: &str) -> ImportPart {
    ImportPart {
        symbol: symbol.into(),
        flags: ImportFlags::NONE,
        fingerprint: 0,
    }
}

/// Panics with the message `ouch`.
pub(crate) fn panics() -> ImageParts {
    let mut rx = vec![
        0x50, // push rax: aligns the stack
        0x48, 0x8b, 0x05, 0x18, 0, 0, 0, // mov rax, [rip+0x18] → 0x20
        0x48, 0x8d, 0x3d, 0x19, 0, 0, 0, // lea rdi, [rip+0x19] → 0x28
        0xbe, 4, 0, 0, 0, // mov esi, 4
        0x31, 0xc9, // xor ecx, ecx: no file
        0xff, 0x10, // call [rax]
    ];
    rx.resize(0x28, 0xcc);
    rx.extend_from_slice(b"ouch");
    ImageParts {
        slot: Some(0x20),
        imports: vec![import("__ifunc_panic")],
        ..image("panics", &rx)
    }
}

/// Answers as many bytes as the payload says, of which the last is 9, by memory of its own. Without that memory, the result is 2.
pub(crate) fn answers() -> ImageParts {
    let mut rx = vec![
        0x53, // push rbx
        0x48, 0x8b, 0x1f, // mov rbx, [rdi]
        0x48, 0x8b, 0x05, 0x35, 0, 0, 0, // mov rax, [rip+0x35] → 0x40
        0x48, 0x89, 0xcf, // mov rdi, rcx
        0x48, 0x89, 0xde, // mov rsi, rbx
        0xff, 0x10, // call [rax]
        0x48, 0x85, 0xc0, // test rax, rax
        0x74, 9, // jz → 33
        0xc6, 0x44, 0x18, 0xff, 9, // mov byte [rax+rbx-1], 9
        0x31, 0xc0, 0x5b, 0xc3, // xor eax, eax; pop rbx; ret
        0xb8, 2, 0, 0, 0, 0x5b, 0xc3, // 33: mov eax, 2; pop rbx; ret
    ];
    rx.resize(0x48, 0xcc);
    ImageParts {
        slot: Some(0x40),
        imports: vec![import("__ifunc_answer")],
        ..image("answers", &rx)
    }
}

/// Calls a function of the host that takes the target arguments, a text and bytes to change, which are both the payload, and that
/// returns `Result<u64, i32>`. Answers the number. With an error, the result is 3.
pub(crate) fn calls_host(function: &str) -> ImageParts {
    let mut rx = vec![
        0x53, // push rbx
        0x48, 0x89, 0xcb, // mov rbx, rcx
        0x4c, 0x8b, 0x4b, 0x10, // mov r9, [rbx+16]
        0x49, 0x89, 0xf0, // mov r8, rsi
        0x48, 0x89, 0xf9, // mov rcx, rdi
        0x48, 0x89, 0xd0, // mov rax, rdx
        0x48, 0x89, 0xf2, // mov rdx, rsi
        0x48, 0x89, 0xfe, // mov rsi, rdi
        0x48, 0x89, 0xc7, // mov rdi, rax
        0x48, 0x8b, 0x05, 0x1f, 0, 0, 0, // mov rax, [rip+0x1f] → 0x40
        0xff, 0x10, // call [rax]
        0x85, 0xc0, // test eax, eax
        0x75, 0x0c, // jnz → 51
        0x48, 0xc7, 0x43, 0x20, 8, 0, 0, 0, // mov qword [rbx+32], 8
        0x31, 0xc0, 0x5b, 0xc3, // xor eax, eax; pop rbx; ret
        0xb8, 3, 0, 0, 0, 0x5b, 0xc3, // 51: mov eax, 3; pop rbx; ret
    ];
    rx.resize(0x48, 0xcc);
    ImageParts {
        slot: Some(0x40),
        imports: vec![import(function)],
        ..image("calls_host", &rx)
    }
}

/// Calls a function of the host that takes a callback. The callback is this code, and its data is the payload.
pub(crate) fn calls_back(function: &str, callback: &[u8]) -> ImageParts {
    let mut rx = vec![
        0x53, // push rbx: aligns the stack
        0x48, 0x89, 0xfe, // mov rsi, rdi
        0x48, 0x8d, 0x3d, 0x1d, 0, 0, 0, // lea rdi, [rip+0x1d] → 0x28
        0x48, 0x8b, 0x05, 0x0e, 0, 0, 0, // mov rax, [rip+0x0e] → 0x20
        0xff, 0x10, // call [rax]
        0x31, 0xc0, 0x5b, 0xc3, // xor eax, eax; pop rbx; ret
    ];
    rx.resize(0x28, 0xcc);
    rx.extend_from_slice(callback);
    ImageParts {
        slot: Some(0x20),
        imports: vec![import(function)],
        ..image("calls_back", &rx)
    }
}
