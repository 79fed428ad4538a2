//go:build amd64 && !race

#include "textflag.h"

// func StoreRelease(p *uint32, v uint32)
TEXT ·StoreRelease(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), BX
	MOVL BX, (AX)
	RET

// The assembler does not know PREFETCHW (0F 0D /1).

// func Own(p unsafe.Pointer)
TEXT ·Own(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08                                  // PREFETCHW (AX)
	RET

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	MOVL $32, AX
again:
	PAUSE
	DECL AX
	JNZ again
	RET
