package wiring

import "softib/proto/ib"

// Medium is what a cable is made of.
type Medium uint8

// Media, the cheapest first.
const (
	// DAC is passive copper with the plugs on it.
	DAC Medium = iota
	// ACC is copper with amplifiers in the plugs.
	ACC
	// AOC is fibre with the transceivers on it.
	AOC
	// Multimode is two transceivers and a multimode fibre.
	Multimode
	// SingleMode is two transceivers and a single-mode fibre.
	SingleMode
	NumMedium
)

var mediumNames = [NumMedium]string{"passive copper (DAC)", "active copper (ACC)", "active optical (AOC)",
	"transceivers, multimode", "transceivers, single-mode"}

func (m Medium) String() string {
	if m < NumMedium {
		return mediumNames[m]
	}
	return "unknown medium"
}

// MarshalText writes the medium by name.
func (m Medium) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// IsOptical reports whether light goes through it.
func (m Medium) IsOptical() bool { return m >= AOC }

// mediumFact is what one medium does at one speed, for a link of four lanes.
type mediumFact struct {
	medium Medium
	// reachMM is the longest that works.
	reachMM int32
	// lowUSD and highUSD are for one link with both its plugs or transceivers, and per metre of it.
	lowUSD, highUSD           float64
	lowUSDMetre, highUSDMetre float64
	// watts is at each end.
	watts float64
}

// media are the cables that are sold for each speed, in the order in which one would choose them.
//
// Read in NVIDIA's public documents: passive copper takes 0.1 W an end (MCP1650, MCP4Y10) and reaches 2 m at NDR
// between twin ports (MCP4Y10; up to 3 m as a splitter, which is not used here); active copper takes 3.5 W an end at
// HDR (MCA1J00) and reaches 3 to 5 m at NDR (overview of 100G-PAM4 copper), where 1.5 W is for a plug of two links
// (MCA7J70); NDR multimode reaches 50 m (MMA4Z00) and single-mode 100 m with 17 W at most for two links (MMS4X00);
// parallel single-mode reaches 500 m and active optical cables about 100 m in general (cable management FAQ); active
// optical cables are not practical at NDR (SuperPOD cabling guide); XDR has neither passive copper nor multimode nor
// active optical cables, only linear active copper and single-mode (list of XDR parts).
//
// Assumed, without a document at hand: everything about SDR to EDR, the reach of copper at HDR, the power of optics at
// HDR and XDR, and the reach of active copper at XDR.
//
// Prices are assumed throughout. No price list was read: they are orders of magnitude in US dollars, and the bill says
// so.
var media = [ib.NumSpeed][]mediumFact{
	ib.SDR:   {{DAC, 15_000, 20, 60, 5, 10, 0.1}, {AOC, 100_000, 60, 200, 1, 3, 1}},
	ib.DDR:   {{DAC, 8_000, 20, 60, 5, 10, 0.1}, {AOC, 100_000, 60, 200, 1, 3, 1}},
	ib.QDR:   {{DAC, 7_000, 25, 70, 6, 15, 0.1}, {AOC, 100_000, 70, 250, 1, 4, 1}},
	ib.FDR10: {{DAC, 5_000, 30, 80, 6, 15, 0.1}, {AOC, 100_000, 80, 280, 1, 4, 1}},
	ib.FDR:   {{DAC, 3_000, 40, 100, 8, 20, 0.1}, {AOC, 100_000, 120, 350, 2, 5, 1.5}},
	ib.EDR:   {{DAC, 3_000, 60, 130, 10, 30, 0.1}, {AOC, 100_000, 180, 450, 2, 6, 2.2}},
	ib.HDR: {{DAC, 2_000, 90, 220, 20, 50, 0.1}, {ACC, 4_000, 250, 500, 30, 60, 3.5},
		{AOC, 100_000, 450, 1000, 3, 8, 4.5}, {SingleMode, 2_000_000, 1400, 3200, 0.5, 2, 5}},
	ib.NDR: {{DAC, 2_000, 120, 300, 30, 70, 0.1}, {ACC, 5_000, 300, 600, 40, 80, 0.8},
		{Multimode, 50_000, 900, 2200, 2, 6, 8.5}, {SingleMode, 500_000, 1200, 2800, 0.5, 2, 8.5}},
	ib.XDR: {{ACC, 2_500, 500, 1000, 60, 120, 1.5}, {SingleMode, 500_000, 2000, 4500, 0.5, 2, 14}},
}

// soldMM are the lengths that cables are sold in: copper and active optical cables by the catalogue, fibres from it
// too.
var soldMM = []int32{500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 7000, 10_000, 15_000, 20_000, 30_000, 40_000,
	50_000, 70_000, 100_000, 150_000, 200_000, 300_000, 500_000,
	1_000_000, 2_000_000}

// opticalLeastMM is the shortest optical cable that is sold.
const opticalLeastMM = 3000

// choose finds the first medium of a list that reaches, and the length to buy; ok is false beyond the reach of all.
func choose(list []mediumFact, needMM int32) (f mediumFact, buyMM int32, ok bool) {
	for _, f := range list {
		for _, sold := range soldMM {
			if sold >= needMM && sold <= f.reachMM && (!f.medium.IsOptical() || sold >= opticalLeastMM) {
				return f, sold, true
			}
		}
	}
	return mediumFact{}, 0, false
}

// switchFact is a switch of a generation.
type switchFact struct {
	ports int
	// lowUSD to highUSD is its price, and watts what it takes without its plugs; all three are assumed.
	lowUSD, highUSD, watts float64
}

// switches are what a switch of each speed is like, for a box with the usual number of ports: 36 at QDR to EDR, 40 at
// HDR (QM8700), 64 at NDR (QM9700), 144 at XDR (Q3400). Boxes with other numbers of ports are taken in proportion.
// Power and prices are assumed, as above: no document or price list was read for them.
var switches = [ib.NumSpeed]switchFact{
	ib.SDR: {24, 500, 2000, 60}, ib.DDR: {24, 500, 2500, 70}, ib.QDR: {36, 500, 4000, 110},
	ib.FDR10: {36, 800, 5000, 120}, ib.FDR: {36, 1000, 7000, 130},
	ib.EDR: {36, 5000, 14000, 136}, ib.HDR: {40, 12000, 24000, 253}, ib.NDR: {64, 22000, 45000, 747},
	ib.XDR: {144, 90000, 160000, 3200},
}
