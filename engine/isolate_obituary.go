package engine

import (
	"bufio"
	"io"
	"regexp"
	"strings"
	"sync"
)

const (
	lastLines     = 3
	lastLineBytes = 500
)

// obituary listens to what a child says on stderr and keeps what may be its last
// words: from the line on with which the Go runtime ends a program, or its last
// lines.
type obituary struct {
	mu    sync.Mutex
	tail  []string
	fatal string
	trace strings.Builder
}

// fatalLine is how the runtime begins to tell why a program ends.
var fatalLine = regexp.MustCompile(`^(fatal error: |panic: |SIG[A-Z]+: |unexpected fault address )`)

// listen passes everything on to out until the child's end.
func (o *obituary) listen(from io.Reader, out io.Writer) {
	r := bufio.NewReaderSize(from, 64<<10)
	whole := true
	for {
		part, err := r.ReadSlice('\n')
		if len(part) > 0 {
			_, _ = out.Write(part) // who reads it is the parent's business
			if whole {
				o.add(strings.TrimRight(string(part), "\r\n"))
			}
			whole = part[len(part)-1] == '\n'
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

func (o *obituary) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case fatalLine.MatchString(line) && (o.fatal == "" || !strings.HasPrefix(line, "SIG")):
		// A signal after that is another thread's, or the one that ends the telling.
		o.fatal = line
		o.trace.Reset()
	case o.fatal != "":
		if o.trace.Len() < maxStackBytes {
			o.trace.WriteString(line)
			o.trace.WriteByte('\n')
		}
	case strings.TrimSpace(line) != "":
		if len(o.tail) == lastLines {
			o.tail = append(o.tail[:0], o.tail[1:]...)
		}
		o.tail = append(o.tail, clean(line, lastLineBytes))
	}
}

// begin forgets what was said before a run.
func (o *obituary) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail, o.fatal = nil, ""
	o.trace.Reset()
}

// last are the last words, and the stack of the goroutine that ended it all.
func (o *obituary) last() (words, stack string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fatal == "" {
		return strings.Join(o.tail, " | "), ""
	}
	if _, goroutines, found := strings.Cut(o.trace.String(), "goroutine "); found {
		stack = "goroutine " + goroutines
	}
	words = o.fatal
	if strings.HasPrefix(words, "SIG") && len(o.tail) > 0 {
		// The signal is what C code ends with after it has said why, as where no
		// thread can be made for lack of memory.
		words = o.tail[len(o.tail)-1] + " | " + words
	}
	return clean(words, lastLineBytes), stack
}
