//go:build screenshots

package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playwright-community/playwright-go"
)

// pictures are the pages that docs/console shows, by the names of their files.
var pictures = []struct{ name, path string }{
	{"overview", "/"}, {"jobs", "/jobs"}, {"job-dead", "/jobs/{dead}"}, {"job-completed", "/jobs/{completed}"}, {"job-running", "/jobs/{running}"},
	{"job-cancel", "/jobs/{waiting}/cancel"}, {"new-job", "/jobs/new"}, {"queues", "/queues"}, {"queue", "/queues/{queue}"}, {"types", "/types"},
	{"type", "/types/{type}"}, {"dlq", "/dlq"}, {"dlq-jobs", "/dlq?view=jobs"}, {"dlq-discarded", "/dlq?view=discarded"},
	{"dlq-group", "/dlq/groups/{group}"}, {"operations", "/operations"}, {"operation", "/operations/{operation}"},
	{"operation-new", "/operations/new?action=replay&fingerprint={group}"}, {"workers", "/workers"}, {"worker", "/workers/{worker}"}, {"audit", "/audit"}, {"system", "/system"},
	{"help", "/help"}, {"help-api", "/help/api"}, {"help-api-schemas", "/help/api/schemas"}, {"not-found", "/jobs/01000000-0000-7000-8000-000000000000"},
}

// tallest is where a picture ends, by its width.
var tallest = map[int]float64{1280: 1400, 380: 1800}

// TestScreenshots writes docs/console: each page, in both themes and two widths, at
// the moment of the simulated incident.
func TestScreenshots(t *testing.T) {
	dir := filepath.Join("..", "docs", "console")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := incident(t)
	names := s.names(t)
	beat := s.keepAlive(t)
	var now time.Time
	if err := s.pool.QueryRow(t.Context(), "SELECT now()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	// The server's own row names the machine that the pictures were taken on.
	if _, err := s.pool.Exec(t.Context(), "UPDATE workers SET name = 'server-1', hostname = 'server-1' WHERE hostname <> 'simulated'"); err != nil {
		t.Fatal(err)
	}
	total := 0
	for width := range tallest {
		for _, theme := range []string{"light", "dark"} {
			v := s.visit(t, sized(width, 720))
			v.expects("the server responded with a status of 404")
			v.cookie("console_theme", theme)
			v.cookie("console_now", now.UTC().Format(time.RFC3339))
			for _, p := range pictures {
				beat()
				path := names.Replace(p.path)
				if strings.Contains(path, "?") {
					path += "&live=off"
				} else {
					path += "?live=off"
				}
				v.open(path)
				total += v.picture(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", p.name, width, theme)), width)
			}
		}
	}
	t.Logf("%d KB", total/1000)
	if total > 6_000_000 {
		t.Errorf("the pictures take %d bytes, want at most 6 MB", total)
	}
}

// keepAlive has the workers that live at the moment of the incident keep their
// leases, and returns what beats for them.
func (s *stage) keepAlive(t *testing.T) func() {
	t.Helper()
	var live []int64
	if err := s.pool.QueryRow(t.Context(), `WITH live AS (SELECT id FROM workers WHERE state <> 'stopped' AND heartbeat_at > now() - interval '20 s'),
		held AS (UPDATE job_claims SET lease_expires_at = now() + interval '30 s' WHERE worker_id IN (SELECT id FROM live))
		SELECT array_agg(id) FROM live`).Scan(&live); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := s.pool.Exec(t.Context(), `WITH beat AS (UPDATE workers SET heartbeat_at = now() WHERE id = ANY($1))
			UPDATE job_claims SET lease_expires_at = now() + interval '30 s' WHERE worker_id = ANY($1)`, live); err != nil {
			t.Fatal(err)
		}
	}
}

// picture writes the page as it is, and answers the size of the file.
func (v *visitor) picture(file string, width int) int {
	v.t.Helper()
	height := fmt.Sprint(v.evaluate("() => document.documentElement.scrollHeight"))
	var tall float64
	if _, err := fmt.Sscan(height, &tall); err != nil {
		v.t.Fatal(err)
	}
	shot, err := v.Screenshot(playwright.PageScreenshotOptions{
		FullPage: playwright.Bool(true), Animations: playwright.ScreenshotAnimationsDisabled,
		Clip: &playwright.Rect{Width: float64(width), Height: min(tall, tallest[width])},
	})
	v.must(err)
	small, err := palette(shot)
	v.must(err)
	v.must(os.WriteFile(file, small, 0o644))
	return len(small)
}

// palette draws a picture with 256 of its colours: text and flat areas lose nothing
// that shows, and the file a good half.
func palette(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	full := image.NewRGBA(from.Bounds())
	draw.Draw(full, full.Bounds(), from, image.Point{}, draw.Src)
	at := func(i int) color.RGBA { return color.RGBA{full.Pix[i], full.Pix[i+1], full.Pix[i+2], 255} }
	used := map[color.RGBA]int{}
	for i := 0; i < len(full.Pix); i += 4 {
		used[at(i)]++
	}
	chosen := choose(used, 256)
	to := image.NewPaletted(full.Bounds(), chosen)
	index := map[color.RGBA]uint8{}
	for c := range used {
		index[c] = uint8(chosen.Index(c))
	}
	for i := 0; i < len(full.Pix); i += 4 {
		to.Pix[i/4] = index[at(i)]
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}

// choose takes, one after the other, the colour that is missed most: often used and
// far from all chosen. A small red icon keeps its red beside a thousand greys.
func choose(used map[color.RGBA]int, n int) color.Palette {
	type candidate struct {
		color.RGBA
		weight, far float64
	}
	var all []candidate
	for c, times := range used {
		all = append(all, candidate{c, math.Sqrt(float64(times)), math.MaxFloat64})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(int(b.weight-a.weight), int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	var p color.Palette
	for next := 0; len(p) < n && all[next].far > 0; {
		p = append(p, all[next].RGBA)
		taken, most := all[next].RGBA, -1.0
		for i := range all {
			c := &all[i]
			r, g, b := float64(c.R)-float64(taken.R), float64(c.G)-float64(taken.G), float64(c.B)-float64(taken.B)
			c.far = min(c.far, r*r+g*g+b*b)
			if missed := c.far * c.weight; missed > most {
				next, most = i, missed
			}
		}
	}
	return p
}

func sized(width, height int) func(*playwright.BrowserNewContextOptions) {
	return func(o *playwright.BrowserNewContextOptions) { o.Viewport = &viewport{Width: width, Height: height} }
}
