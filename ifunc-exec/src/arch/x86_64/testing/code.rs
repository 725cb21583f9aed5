//! Machine code of the images that tests install. Code with imports comes with the offset of its slot.

/// `mov eax, NUMBER ; ret`
pub(crate) fn returns(number: u32) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend(number.to_le_bytes());
    code.push(0xc3);
    code
}

/// Returns the word so many bytes from its beginning: `mov eax, [rip+…] ; ret`.
pub(crate) fn loads_from(distance: usize) -> Vec<u8> {
    let mut code = vec![0x8b, 0x05];
    code.extend((distance as u32 - 6).to_le_bytes());
    code.push(0xc3);
    code
}

/// Waits a little and returns: `mov ecx, 50 ; 1: pause ; dec ecx ; jnz 1b ; mov eax, number ; ret`.
pub(crate) fn waits_and_returns(number: u32) -> Vec<u8> {
    let mut code = vec![0xb9, 50, 0, 0, 0, 0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa];
    code.extend(returns(number));
    code
}

/// Adds the payload to the target and answers the payload's length, 8: `mov rax, [rdi] ; add [rdx], rax ;
/// mov qword [rcx+32], 8 ; xor eax, eax ; ret`.
pub(crate) fn add() -> Vec<u8> {
    vec![
        0x48, 0x8b, 0x07, 0x48, 0x01, 0x02, 0x48, 0xc7, 0x41, 0x20, 8, 0, 0, 0, 0x31, 0xc0, 0xc3,
    ]
}

/// Panics with the message `ouch`, through the slot.
pub(crate) fn panics() -> (Vec<u8>, u32) {
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
    (rx, 0x20)
}

/// Calls its import with 8 and 8, and itself, until the stack ends.
pub(crate) fn deep() -> (Vec<u8>, u32) {
    // sub rsp, 0x208; mov edi, 8; mov esi, 8; mov rax, [rip+0x10] → 0x28; call [rax]; call 0
    let mut rx = vec![
        0x48, 0x81, 0xec, 0x08, 0x02, 0, 0, 0xbf, 8, 0, 0, 0, 0xbe, 8, 0, 0, 0,
    ];
    rx.extend_from_slice(&[
        0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0xff, 0x10, 0xe8, 0xe1, 0xff, 0xff, 0xff,
    ]);
    rx.resize(0x30, 0xcc);
    (rx, 0x28)
}

/// Calls its only import with these arguments, of 32 bits each: through the slot, as compiled code does.
pub(crate) fn calls([first, second, third]: [u32; 3]) -> (Vec<u8>, u32) {
    let mut rx = vec![0x50, 0x48, 0x8b, 0x05, 0x18, 0, 0, 0]; // push rax; mov rax, [rip+0x18] → 0x20
    for (register, value) in [(0xbf, first), (0xbe, second), (0xba, third)] {
        rx.push(register); // mov edi/esi/edx, value
        rx.extend_from_slice(&value.to_le_bytes());
    }
    rx.extend_from_slice(&[0xff, 0x10, 0x59, 0x31, 0xc0, 0xc3]); // call [rax]; pop rcx; xor eax, eax; ret
    rx.resize(0x28, 0xcc);
    (rx, 0x20)
}

/// `xor eax, eax; nop; mov rax, [rax]; ret`
pub(crate) fn reads_null() -> Vec<u8> {
    vec![0x31, 0xc0, 0x90, 0x48, 0x8b, 0x00, 0xc3]
}

/// Offset in [`reads_null`] of the instruction that reads.
pub(crate) const READS_AT: u32 = 3;

/// Jumps to 64: `mov eax, 64; jmp rax`.
pub(crate) fn jumps() -> Vec<u8> {
    vec![0xb8, 0x40, 0, 0, 0, 0xff, 0xe0]
}

/// `nop; jmp $`
pub(crate) fn loops() -> Vec<u8> {
    vec![0x90, 0xeb, 0xfe]
}

/// Offset of the loop in [`loops`].
pub(crate) const LOOPS_AT: u32 = 1;

/// States an answer of 8 bytes and returns this code: `mov qword [rcx+32], 8 ; mov eax, code ; ret`.
pub(crate) fn states_eight(code: u8) -> Vec<u8> {
    vec![0x48, 0xc7, 0x41, 0x20, 8, 0, 0, 0, 0xb8, code, 0, 0, 0, 0xc3]
}

/// Asks its import for an answer of 5000 bytes, states one of 8 and returns this code.
pub(crate) fn asks(code: u8) -> (Vec<u8>, u32) {
    // push rcx; mov rdi, rcx; mov esi, 5000; mov rax, [rip+0x19] → 0x28; call [rax]; pop rcx; mov qword [rcx+32], 8;
    // mov eax, CODE; ret
    let mut rx = vec![
        0x51, 0x48, 0x89, 0xcf, 0xbe, 0x88, 0x13, 0, 0, 0x48, 0x8b, 0x05, 0x18, 0, 0, 0, 0xff, 0x10, 0x59,
        0x48, 0xc7, 0x41, 0x20, 8, 0, 0, 0, 0xb8, code, 0, 0, 0, 0xc3,
    ];
    rx.resize(0x30, 0xcc);
    (rx, 0x28)
}

/// Allocates 64 bytes twice by its first import, frees the second by its second one, resizes the first to the payload's number by its
/// third one, and writes what is left to the target argument. It then ends by an instruction that is none if the number is odd, and
/// returns otherwise.
pub(crate) fn holds_one() -> (Vec<u8>, u32) {
    let mut rx = vec![0x53, 0x55, 0x41, 0x54]; // push rbx; push rbp; push r12
    rx.extend([0x49, 0x89, 0xd4, 0x48, 0x8b, 0x1f]); // mov r12, rdx; mov rbx, [rdi]
    let slot_at = 0x80;
    // Through the slot: the import of this index.
    let call = |rx: &mut Vec<u8>, index: u8| {
        rx.extend([0x48, 0x8b, 0x05]); // mov rax, [rip+…]
        let distance = slot_at - (rx.len() as u32 + 4);
        rx.extend(distance.to_le_bytes());
        rx.extend([0xff, 0x50, index * 8]); // call [rax+8*index]
    };
    let two_arguments = [0xbf, 64, 0, 0, 0, 0xbe, 16, 0, 0, 0]; // mov edi, 64; mov esi, 16
    rx.extend(two_arguments);
    call(&mut rx, 0);
    rx.extend([0x48, 0x89, 0xc5]); // mov rbp, rax
    rx.extend(two_arguments);
    call(&mut rx, 0);
    rx.extend([0x48, 0x89, 0xc7, 0xbe, 64, 0, 0, 0, 0xba, 16, 0, 0, 0]); // mov rdi, rax; mov esi, 64; mov edx, 16
    call(&mut rx, 1);
    rx.extend([0x48, 0x89, 0xef, 0xbe, 64, 0, 0, 0, 0xba, 16, 0, 0, 0]); // mov rdi, rbp; mov esi, 64; mov edx, 16
    rx.extend([0x48, 0x89, 0xd9]); // mov rcx, rbx
    call(&mut rx, 2);
    rx.extend([0x49, 0x89, 0x04, 0x24]); // mov [r12], rax
    rx.extend([0xf6, 0xc3, 1, 0x74, 2, 0x0f, 0x0b]); // test bl, 1; jz over; ud2
    rx.extend([0x41, 0x5c, 0x5d, 0x5b, 0x31, 0xc0, 0xc3]); // over: pop r12; pop rbp; pop rbx; xor eax, eax; ret
    assert!(rx.len() <= slot_at as usize);
    rx.resize(slot_at as usize + 8, 0xcc);
    (rx, slot_at)
}

/// Sends to its own beginning, or to what is inside of itself, and returns what its import says.
pub(crate) fn sends(is_inside: bool) -> (Vec<u8>, u32) {
    let mut rx = vec![0x53, 0x48, 0x89, 0xcf, 0x31, 0xf6]; // push rbx; mov rdi, rcx; xor esi, esi
    // lea rdx, [rip-13], its own beginning; lea rdx, [rip-12], which is inside of it
    rx.extend_from_slice(&[0x48, 0x8d, 0x15, 0xf3 + u8::from(is_inside), 0xff, 0xff, 0xff]);
    rx.extend_from_slice(&[0x31, 0xc9, 0x48, 0x8b, 0x05, 0x0a, 0, 0, 0]); // xor ecx, ecx; mov rax, [rip+0xa] → 0x20
    rx.extend_from_slice(&[0xff, 0x10, 0x5b, 0xc3]); // call [rax]; pop rbx; ret
    rx.resize(0x28, 0xcc);
    (rx, 0x20)
}

/// Answers the address that its import is bound to: `mov rax, [rip+slot] ; mov rax, [rax] ; mov rdi, [rcx+16] ; mov [rdi], rax ;
/// mov qword [rcx+32], 8 ; xor eax, eax ; ret`.
pub(crate) fn finds() -> (Vec<u8>, u32) {
    let mut rx = vec![
        0x48, 0x8b, 0x05, 0x19, 0, 0, 0, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x79, 0x10, 0x48, 0x89, 0x07, 0x48,
        0xc7, 0x41, 0x20, 8, 0, 0, 0, 0x31, 0xc0, 0xc3,
    ];
    rx.resize(0x28, 0xcc);
    (rx, 0x20)
}

/// Answers what its first import returns and, after it, what its second import holds.
pub(crate) fn reads_versions() -> (Vec<u8>, u32) {
    let mut rx = vec![
        0x53, // push rbx
        0x48, 0x89, 0xcb, // mov rbx, rcx
        0x48, 0x8b, 0x05, 0x35, 0, 0, 0, // mov rax, [rip+0x35] → 0x40
        0xff, 0x10, // call [rax]
        0x48, 0x8b, 0x15, 0x2c, 0, 0, 0, // mov rdx, [rip+0x2c] → 0x40
        0x48, 0x8b, 0x52, 0x08, // mov rdx, [rdx+8]
        0x48, 0x8b, 0x12, // mov rdx, [rdx]
        0x48, 0x8b, 0x7b, 0x10, // mov rdi, [rbx+16]
        0x48, 0x89, 0x07, // mov [rdi], rax
        0x48, 0x89, 0x57, 0x08, // mov [rdi+8], rdx
        0x48, 0xc7, 0x43, 0x20, 16, 0, 0, 0, // mov qword [rbx+32], 16
        0x31, 0xc0, // xor eax, eax
        0x5b, 0xc3, // pop rbx ; ret
    ];
    rx.resize(0x48, 0xcc);
    (rx, 0x40)
}

/// Replaces `version` by a function of its own, which returns 9, or by one at an address that is far away.
pub(crate) fn replaces_by_its_own(signature: &[u8; 17], is_far: bool) -> (Vec<u8>, u32) {
    let mut rx = vec![
        0x53, // push rbx
        0x48,
        0x89,
        0xcf, // mov rdi, rcx
        0x48,
        0x8d,
        0x35,
        0x3d,
        0,
        0,
        0, // lea rsi, [rip+0x3d] → 0x48
        0xba,
        7,
        0,
        0,
        0, // mov edx, 7
        0x48,
        0x8d,
        0x0d,
        0x39,
        0,
        0,
        0, // lea rcx, [rip+0x39] → 0x50
        0x41,
        0xb8,
        17,
        0,
        0,
        0, // mov r8d, 17
        0x4c,
        0x8d,
        0x0d,
        0x0c,
        0,
        0,
        if is_far { 0x10 } else { 0 }, // lea r9, [rip+0xc] → 0x30
        0x48,
        0x8b,
        0x05,
        0x15,
        0,
        0,
        0, // mov rax, [rip+0x15] → 0x40
        0xff,
        0x10, // call [rax]
        0x5b,
        0xc3, // pop rbx ; ret
        0xcc,
        0xb8,
        9,
        0,
        0,
        0,
        0xc3, // mov eax, 9 ; ret
    ];
    rx.resize(0x48, 0xcc);
    rx.extend_from_slice(b"version\0");
    rx.extend_from_slice(signature);
    (rx, 0x40)
}

/// Bytes of the shortest instruction.
pub(crate) const SHORTEST: usize = 1;

/// Writes an instruction that calls what is at `to`, and returns to `back`.
pub(crate) fn put_call(code: &mut [u8], back: usize, to: usize) {
    code[back - 5] = 0xe8;
    let distance = to as i32 - back as i32;
    code[back - 4..back].copy_from_slice(&distance.to_le_bytes());
}
