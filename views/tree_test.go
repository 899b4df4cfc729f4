package views

import (
	"strconv"
	"strings"
	"testing"
)

// lines writes a tree as one line per value.
func lines(n Node, indent string) string {
	s := indent
	if n.Key != "" {
		s += n.Key + ": "
	}
	s += n.Text + "\n"
	for _, k := range n.Kids {
		s += lines(k, indent+" ")
	}
	return s
}

func TestTreeSortsKeysAndKeepsEveryDigit(t *testing.T) {
	t.Parallel()
	j := NewJSON([]byte(`{"z":123456789012345678901234567890,"a":1.10,"m":{"b":[true,null,-0.0]},"e":1e400,"":"x"}`), nil)
	want := "5 keys\n \"\": \"x\"\n a: 1.10\n e: 1e400\n m: 1 key\n  b: 3 items\n   true\n   null\n   -0.0\n z: 123456789012345678901234567890\n"
	if got := lines(*j.Root, ""); got != want {
		t.Errorf("tree =\n%s, want\n%s", got, want)
	}
	wantRaw := "{\n  \"\": \"x\",\n  \"a\": 1.10,\n  \"e\": 1e400,\n  \"m\": {\n    \"b\": [\n      true,\n      null,\n      -0.0\n    ]\n  },\n  \"z\": 123456789012345678901234567890\n}"
	if j.Raw != wantRaw || j.Cut || j.Size != "89 bytes" {
		t.Errorf("raw = %s, cut %t, size %s, want %s", j.Raw, j.Cut, j.Size, wantRaw)
	}
}

func TestMaskedValuesStandNowhere(t *testing.T) {
	t.Parallel()
	secret := "s3cr3t"
	j := NewJSON([]byte(`{"password":"`+secret+`","list":[{"card":{"number":"`+secret+`"}}],"n":1}`), func(k string) bool { return k == "password" || k == "card" })
	if all := lines(*j.Root, "") + j.Raw; strings.Contains(all, secret) || !strings.Contains(all, `"n": 1`) {
		t.Errorf("the tree or its raw text shows what is masked: %s", all)
	}
	if j.Masked != 2 || !strings.Contains(j.note(), "2 values masked") {
		t.Errorf("masked %d, %q, want 2", j.Masked, j.note())
	}
}

func TestLargeDocumentsAreCut(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 20_000 {
		many.WriteString(`,"key` + strconv.Itoa(i) + `":"value"`)
	}
	for name, raw := range map[string]string{
		"keys":   `{"a":1` + many.String() + `}`,
		"depth":  strings.Repeat(`[`, 9_000) + strings.Repeat(`]`, 9_000),
		"text":   `{"a":"` + strings.Repeat("ä", 100_000) + `"}`,
		"broken": strings.Repeat("x", 100_000),
	} {
		j := NewJSON([]byte(raw), nil)
		if !j.Cut {
			t.Errorf("%s is not cut", name)
		}
		if len(j.Raw) > rawMax+8 {
			t.Errorf("%s: raw takes %d bytes, want at most %d", name, len(j.Raw), rawMax)
		}
		m := storyJobModel()
		m.Payload = j
		if n := len(render(t, JobPage(m))); n > 150_000 {
			t.Errorf("%s: the page takes %d bytes", name, n)
		}
	}
}

func TestTextThatHidesItselfIsSpeltOut(t *testing.T) {
	t.Parallel()
	j := NewJSON([]byte("{\"file\u202e\":\"a\u202etxt.exe\u200b\",\"tag\":\"<b>\"}"), nil)
	if got := lines(*j.Root, ""); strings.ContainsRune(got, 0x202e) || !strings.Contains(got, `a\u202etxt.exe\u200b`) || !strings.Contains(got, `"<b>"`) {
		t.Errorf("tree = %q", got)
	}
	if j := NewJSON([]byte("not\u202e json"), nil); j.Root != nil || strings.ContainsRune(j.Raw, 0x202e) {
		t.Errorf("what is no JSON = %+v", j)
	}
	if j := NewJSON([]byte(`{} {}`), nil); j.Root != nil {
		t.Error("two documents are drawn as one")
	}
}
