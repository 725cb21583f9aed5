##Machines: x86-64
## Every relocation is of a kind that is refused; each is shown with its referrer.
        .section .text.local_undefined_main,"ax",@progbits
        .globl local_undefined_main
        .type local_undefined_main,@function
local_undefined_main:
        call first
        jmp second
        .size local_undefined_main,.-local_undefined_main
        .section .text.first,"ax",@progbits
        .type first,@function
first:  mov $here,%eax
        mov here(,%rdi,8),%rax
        lea there(%rip),%rax
        ret
        .size first,.-first
        .section .text.second,"ax",@progbits
        .type second,@function
second: mov $here,%ecx
        movabs $there@GOT,%rax
        ret
        .size second,.-second
        .section .data.here,"aw",@progbits
here:   .quad 1
