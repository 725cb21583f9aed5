##Machines: x86-64
## A thread-local variable by a descriptor.
        .section .text.reloc_tlsdesc_main,"ax",@progbits
        .globl reloc_tlsdesc_main
        .type reloc_tlsdesc_main,@function
reloc_tlsdesc_main:
        lea there@TLSDESC(%rip),%rax
        call *there@TLSCALL(%rax)
        xor %eax,%eax
        ret
        .size reloc_tlsdesc_main,.-reloc_tlsdesc_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
