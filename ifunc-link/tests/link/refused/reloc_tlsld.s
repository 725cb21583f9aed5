##Machines: x86-64
## A thread-local variable of the own module.
        .section .text.reloc_tlsld_main,"ax",@progbits
        .globl reloc_tlsld_main
        .type reloc_tlsld_main,@function
reloc_tlsld_main:
        lea there@TLSLD(%rip),%rdi
        call __tls_get_addr@PLT
        lea there@DTPOFF(%rax),%rax
        xor %eax,%eax
        ret
        .size reloc_tlsld_main,.-reloc_tlsld_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
