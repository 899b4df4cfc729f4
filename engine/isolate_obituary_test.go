package engine

import (
	"io"
	"strings"
	"testing"
)

// TestLastWords: whatever a program says at its end, and however long, the cause is what is kept of it.
func TestLastWords(t *testing.T) {
	t.Parallel()
	dump := "PC=0x7f52 m=7 sigcode=18446744073709551610\n\ngoroutine 0 gp=0x2d m=7 [idle]:\n" + strings.Repeat("00007f51d2ffc8a0: 00000000 00000000\n", 2*maxStackBytes/35) + "gs     0x0\n"
	for name, c := range map[string]struct{ said, words, stack string }{
		"a panic":                    {"at work\npanic: no such row\n\ngoroutine 7 [running]:\nmain.f()\n", "panic: no such row", "goroutine 7 [running]:\nmain.f()\n"},
		"C code gives up":            {"pthread_create failed: no memory\nSIGABRT: abort\n" + dump, "pthread_create failed: no memory | SIGABRT: abort", ""},
		"C code of two threads":      {"pthread_create failed: no memory\nSIGABRT: abort\n" + dump + "SIGABRT: abort\n" + dump, "pthread_create failed: no memory | SIGABRT: abort", ""},
		"a signal after a fatal one": {"fatal error: out of memory\n" + dump + "SIGSEGV: segmentation violation\n" + dump, "fatal error: out of memory", ""},
		"a panic during a panic":     {"panic: first\n\tpanic: second\n\ngoroutine 1 [running]:\n", "panic: first", "goroutine 1 [running]:\n"},
		"a recovered one, printed":   {"panic: seen to\ngoroutine 3 [running]:\nfatal error: stack overflow\n\ngoroutine 9 [running]:\n", "fatal error: stack overflow", "goroutine 9 [running]:\n"},
		"neither":                    {"one\ntwo\nthree\n\nfour\n", "two | three | four", ""},
		"nothing":                    {"", "", ""},
	} {
		var o obituary
		o.listen(strings.NewReader(c.said), io.Discard)
		words, stack := o.last()
		if words != c.words {
			t.Errorf("%s: %q, want %q", name, words, c.words)
		}
		if !strings.HasPrefix(stack, c.stack) {
			t.Errorf("%s: the stack is %q, want %q", name, stack, c.stack)
		}
	}
}
