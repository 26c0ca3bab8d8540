Feature: Create events with custom seating
  As a seller, I can create events with custom seating configurations

  Background:
    Given a seller

  Scenario: A hall with sections, subsections, blocked and accessible seats
    When the seller creates "Night Train" with this hall
      | section | price | subsections | rows | seats | blocked | accessible |
      | A       | 3000  | 2           | 2    | 10    | 1-1     | 2-10       |
      | B       | 1500  | 1           | 4    | 5     |         |            |
    Then the event has 60 seats
    And there are 60 tickets, of which 2 cannot be sold
    And the store offers 58 seats
    And tickets and store agree

  Scenario: Nobody sees an event before its sale is opened
    When the seller creates "Secret Show" with this hall
      | section | price | subsections | rows | seats | blocked | accessible |
      | A       | 3000  | 1           | 2    | 10    |         |            |
    Then a buyer does not find the event
    And a booking for it is refused with "sale_not_open"
    When the seller opens the sale
    Then a buyer finds the event

  Scenario: The sale is closed and opened again
    Given "Night Train" is on sale with 20 seats
    When the seller closes the sale
    Then a booking for it is refused with "sale_not_open"
    When the seller opens the sale
    Then a buyer can book 2 seats

  Scenario Outline: A hall that cannot be sold is refused, and nothing is left behind
    When the seller describes an event with <fault>
    Then that is refused with "<code>"
    And there is no new event and no new ticket

    Examples:
      | fault                            | code            |
      | two sections of the same name    | bad_event       |
      | a blocked seat that is not there | bad_event       |
      | a subsection of 10,001 seats     | bad_event       |
      | no section and no pool           | bad_event       |
      | a price of -1                    | invalid_request |
      | a date without an offset         | bad_event       |

  Scenario: Somebody else's event is out of reach
    Given "Night Train" is on sale with 20 seats
    When another seller closes the sale
    Then that is refused with "not_found"
    And a buyer can book 2 seats
