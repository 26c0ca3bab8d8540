Feature: Sales as they happen
  As a seller, I can view real-time sales analytics and monitor the seats of my event

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open

  Scenario: Sold, held and free
    Given a buyer has paid for 2 seats
    And another buyer has booked 3 seats
    Then the seller sees 2 sold, 3 held and 15 free seats, and 6000 TWD
    And the seller sees 2 tickets in the last minutes
    And the table for the accountant says the same

  Scenario: Bookings that were paid, of those that had seats
    Given a buyer has paid for 2 seats
    And the buyer has booked 1 seats more and lets them go
    Then the seller sees that half of the bookings were paid

  Scenario: A refund
    Given a buyer has paid for 2 seats
    When the buyer asks for a refund
    Then the seller sees 0 sold, 0 held and 20 free seats, and 0 TWD
    And the seller sees a refund of 2 tickets over 6000 TWD

  Scenario: Live
    Given the seller watches the sales
    When a buyer pays for 4 seats
    Then the seller is shown 4 sold seats and 12000 TWD without asking

  Scenario: Somebody else's figures
    When another seller asks for the sales
    Then that is refused with "not_found"
