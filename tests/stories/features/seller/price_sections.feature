Feature: Ticket pricing by sections
  As a seller, I can manage ticket pricing by sections

  Background:
    Given a seller
    And "Night Train" is on sale in this hall
      | section | price | subsections | rows | seats | blocked | accessible |
      | A       | 3000  | 1           | 1    | 4     |         |            |
      | B       | 1500  | 2           | 1    | 4     |         |            |

  Scenario: Each section shows its own price and its free seats
    Then the sections are
      | section | price | free |
      | A       | 3000  | 4    |
      | B       | 1500  | 8    |

  Scenario Outline: A booking costs what its section costs
    When a buyer books <seats> seats in section <section>
    Then the booking is PENDING_PAYMENT and costs <total> TWD

    Examples:
      | seats | section | total |
      | 2     | A       | 6000  |
      | 3     | B       | 4500  |

  Scenario: A party that sits in two sections pays each seat by its section
    Given a buyer has booked 3 seats in section A
    And a buyer has booked 4 seats in section B
    And a buyer has booked 3 seats in section B
    When a buyer books 2 seats anywhere
    Then the booking is PENDING_PAYMENT and costs 4500 TWD
