package engine

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Ids travel in binary. Left to itself pgx finds that uuid.UUID has a Value and
// a Scan method and goes through their text form, which was a fifth of the
// client's time in a drain.

// uuidValue is an id as pgx's codec takes and gives it.
type uuidValue ID

var (
	_ pgtype.UUIDValuer  = (*uuidValue)(nil)
	_ pgtype.UUIDScanner = (*uuidValue)(nil)
)

// UUIDValue implements pgtype.UUIDValuer.
func (v *uuidValue) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: *v, Valid: true}, nil }

// ScanUUID implements pgtype.UUIDScanner. NULL is the nil id.
func (v *uuidValue) ScanUUID(u pgtype.UUID) error {
	*v = u.Bytes
	return nil
}

// uuidArray is a parameter of many ids.
type uuidArray []ID

var _ pgtype.ArrayGetter = uuidArray(nil)

func (a uuidArray) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}}
}
func (a uuidArray) Index(i int) any { return (*uuidValue)(&a[i]) }
func (a uuidArray) IndexType() any  { return (*uuidValue)(nil) }

// scanUUIDs makes a connection read ids without a detour.
func scanUUIDs(m *pgtype.Map) {
	m.TryWrapScanPlanFuncs = append([]pgtype.TryWrapScanPlanFunc{func(target any) (pgtype.WrappedScanPlanNextSetter, any, bool) {
		id, ok := target.(*uuid.UUID)
		if !ok {
			return nil, nil, false
		}
		return &uuidScanPlan{}, (*uuidValue)(id), true
	}}, m.TryWrapScanPlanFuncs...)
}

type uuidScanPlan struct{ next pgtype.ScanPlan }

// SetNext implements pgtype.WrappedScanPlanNextSetter.
func (p *uuidScanPlan) SetNext(next pgtype.ScanPlan) { p.next = next }

// Scan implements pgtype.ScanPlan.
func (p *uuidScanPlan) Scan(src []byte, dst any) error {
	return p.next.Scan(src, (*uuidValue)(dst.(*uuid.UUID)))
}
