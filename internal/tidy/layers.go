package tidy

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rulesFile and architectureFile hold the two copies of the ranks: what this package keeps, and what people read.
const (
	rulesFile        = "internal/tidy/rules.go"
	architectureFile = "docs/ARCHITECTURE.md"
)

// CheckLayers wants the table ranks to name packages that exist, and the table of layers in docs/ARCHITECTURE.md to
// say of each of them what ranks says, and of no other.
func CheckLayers(m *Module) []Complaint { return checkLayers(m, ranks) }

func checkLayers(m *Module, ranks map[string]int) []Complaint {
	var out []Complaint
	exists := map[string]bool{}
	for _, p := range m.Packages {
		exists[p.Dir] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(ranks)) {
		if !exists[dir] {
			out = append(out, Complaint{rulesFile, 0, "the table ranks names " + dir + ", which does not exist"})
		}
	}
	rows, line := layerRows(m.Texts[architectureFile])
	if line == 0 {
		return append(out, Complaint{architectureFile, 0, "no table of layers that opens \"| rank | package |\""})
	}
	shown := map[string]bool{}
	for _, row := range rows {
		for _, dir := range row.dirs {
			rank, ranked := ranks[dir]
			switch {
			case shown[dir]:
				out = append(out, Complaint{architectureFile, row.line, dir + " has two lines in the table of layers"})
			case !ranked:
				out = append(out, Complaint{architectureFile, row.line, dir + " has no rank in " + rulesFile})
			case strconv.Itoa(rank) != row.rank:
				out = append(out, Complaint{architectureFile, row.line,
					fmt.Sprintf("%s has rank %s here and %d in %s", dir, row.rank, rank, rulesFile)})
			}
			shown[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(ranks)) {
		if exists[dir] && !shown[dir] {
			out = append(out, Complaint{architectureFile, line, dir + " has no line in the table of layers"})
		}
	}
	return out
}

// layerRow is a line of the table of layers: a rank and the packages that have it.
type layerRow struct {
	line int
	rank string
	dirs []string
}

var inBackquotes = regexp.MustCompile("`([^`]+)`")

// layerRows reads the table of layers out of a document. The row of what stands outside of the ranks is left out. The
// line is that of the table's head, 0 if there is no such table.
func layerRows(document []byte) (rows []layerRow, line int) {
	n := 0
	for l := range bytes.Lines(document) {
		n++
		cells := strings.Split(string(l), "|")
		isRow := len(cells) > 3
		switch {
		case line == 0:
			if isRow && strings.TrimSpace(cells[1]) == "rank" && strings.TrimSpace(cells[2]) == "package" {
				line = n
			}
		case !isRow:
			return rows, line
		case n > line+1 && strings.TrimSpace(cells[1]) != "–":
			row := layerRow{line: n, rank: strings.TrimSpace(cells[1])}
			for _, name := range inBackquotes.FindAllStringSubmatch(cells[2], -1) {
				row.dirs = append(row.dirs, name[1])
			}
			rows = append(rows, row)
		}
	}
	return rows, line
}

// CheckRooms keeps the rooms in the order of the table floors: a package imports nothing from a floor above its own.
// Ranks alone would allow it where a package of a low rank lies in a room upstairs.
func CheckRooms(m *Module) []Complaint {
	var out []Complaint
	floor := map[string]int{}
	for i, rooms := range floors {
		for _, room := range rooms {
			floor[room] = i
		}
	}
	for _, p := range m.Packages {
		room := roomOf(p.Dir)
		here, known := floor[room]
		if isFree(p.Dir) {
			continue
		}
		if !known {
			out = append(out, Complaint{p.Dir, 0, fmt.Sprintf("room %s has no floor: add it to the table floors in %s",
				room, rulesFile)})
			continue
		}
		for _, f := range p.Files {
			if f.IsTest {
				continue
			}
			for _, spec := range f.Syntax.Imports {
				inside, ok := strings.CutPrefix(importPath(spec), ModulePath+"/")
				if !ok || isFree(inside) {
					continue
				}
				if there, ok := floor[roomOf(inside)]; !ok || there > here {
					out = append(out, Complaint{f.Name, m.lineOf(spec),
						fmt.Sprintf("room %s imports %s, which is not below it", room, inside)})
				}
			}
		}
	}
	return out
}

// roomOf is the first element of a package's path.
func roomOf(dir string) string {
	room, _, _ := strings.Cut(dir, "/")
	return room
}
