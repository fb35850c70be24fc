/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Leaves the core from any depth. Only registers that a callee must keep are saved; the compiler
 * knows that sf_save can return twice. */
#include <linux/linkage.h>
#include <asm/unwind_hints.h>
#include <asm/nospec-branch.h>

#include "compat.h"

	.text

SYM_FUNC_START(sf_save)
	movq	(%rsp), %rax
	movq	%rax, 0(%rdi)
	movq	%rsp, 8(%rdi)
	movq	%rbx, 16(%rdi)
	movq	%rbp, 24(%rdi)
	movq	%r12, 32(%rdi)
	movq	%r13, 40(%rdi)
	movq	%r14, 48(%rdi)
	movq	%r15, 56(%rdi)
	xorl	%eax, %eax
	RET
SYM_FUNC_END(sf_save)

SYM_CODE_START(sf_escape)
	SF_UNWIND_NOTHING
	movq	16(%rdi), %rbx
	movq	24(%rdi), %rbp
	movq	32(%rdi), %r12
	movq	40(%rdi), %r13
	movq	48(%rdi), %r14
	movq	56(%rdi), %r15
	movq	8(%rdi), %rsp
	/* The caller of sf_save may have used the place of its return address. */
	movq	0(%rdi), %rax
	movq	%rax, (%rsp)
	movl	$1, %eax
	RET
SYM_CODE_END(sf_escape)
