##Machines: x86-64
## A thread-local variable, general-dynamic model.
        .section .text.reloc_tlsgd_main,"ax",@progbits
        .globl reloc_tlsgd_main
        .type reloc_tlsgd_main,@function
reloc_tlsgd_main:
        data16 lea there@TLSGD(%rip),%rdi
        .word 0x6666
        rex64 call __tls_get_addr@PLT
        xor %eax,%eax
        ret
        .size reloc_tlsgd_main,.-reloc_tlsgd_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
