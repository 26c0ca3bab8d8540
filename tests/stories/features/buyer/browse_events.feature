Feature: Browse available events
  As a buyer, I can browse available events

  Background:
    Given these events are on sale
      | name            | venue       | starts                    |
      | Night Train     | Old Harbour | 2027-03-01T20:00:00+08:00 |
      | Morning Glory   | Old Harbour | 2027-02-01T20:00:00+08:00 |
      | 100% Percussion | New Hall    | 2027-04-01T20:00:00+08:00 |

  Scenario: Soonest first, page by page
    When a visitor browses 2 events at a time
    Then the visitor sees "Morning Glory", "Night Train", "100% Percussion" in this order, each once

  Scenario Outline: Searching by name or venue
    When a visitor searches for "<words>"
    Then the visitor sees <found>

    Examples:
      | words   | found                          |
      | night   | "Night Train"                  |
      | harbour | "Morning Glory", "Night Train" |
      | 0% p    | "100% Percussion"              |
      | _       | nothing                        |

  Scenario: How full each section is
    Given a buyer has booked 3 seats of "Night Train"
    Then section A of "Night Train" shows 17 of 20 seats free
