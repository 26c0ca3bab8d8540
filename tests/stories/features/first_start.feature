Feature: A newcomer starts Aisle
  As an operator, I type one command and have everything running, so that I can look before I decide

  Scenario: The first start
    Given an empty data directory
    When the operator starts Aisle
    Then Aisle prints an address
    And the address answers that it is ready
    And the API page shows what a program can do

  Scenario: Starting again
    Given Aisle has run once on a data directory
    When the operator starts Aisle again
    Then it is the same installation as before

  Scenario: A typo in a setting
    Given an empty data directory
    When the operator starts Aisle with the setting "AISLE_PROT" as "9000"
    Then Aisle refuses with "unknown setting AISLE_PROT (did you mean AISLE_PORT?)"
    And the data directory is still empty
